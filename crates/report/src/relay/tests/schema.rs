//! Reports against `docs/report.schema.json`, by the few words of JSON Schema that it uses.

use serde_json::Value;

use super::all;
use crate::relay::{SCHEMA, json};

/// The words that [`check`] understands; the schema may use no other, or it would promise more than is tested.
const WORDS: [&str; 14] = [
    "$schema",
    "$id",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "enum",
    "const",
];

fn schema() -> Value {
    let text = include_str!("../../../../../docs/report.schema.json");
    serde_json::from_str(text).expect("the schema is JSON")
}

#[test]
fn every_report_follows_the_schema() {
    let schema = schema();
    for (name, report) in all() {
        let value = serde_json::from_str(&json::render(&report)).unwrap();
        check(&schema, &schema, &value, name).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn the_schema_names_every_field_and_no_other() {
    assert_complete(&schema());
    assert_version(&schema(), SCHEMA, 0x157d_4f72_d216_f291);
}

#[test]
fn a_report_with_a_wrong_field_fails() {
    let schema = schema();
    let (_, report) = all().swap_remove(0);
    let value: Value = serde_json::from_str(&json::render(&report)).unwrap();
    let broken = |change: fn(&mut Value)| {
        let mut value = value.clone();
        change(&mut value);
        check(&schema, &schema, &value, "report").is_err()
    };
    assert!(!broken(|_| ()));
    assert!(broken(|value| value["schema"] = 1.into()));
    assert!(broken(|value| value["run"]["seed"] = "1".into()));
    assert!(broken(|value| value["run"]["more"] = 1.into()));
    assert!(broken(
        |value| value["tracks"][0]["subscribers"][0]["status"] = "fine".into()
    ));
    assert!(broken(
        |value| value["relay"]["source"] = serde_json::json!({ "kind": "child_process" })
    ));
    assert!(broken(|value| {
        value["slo"].as_object_mut().unwrap().remove("held");
    }));
}

/// Every field is described and always written, and there is no other.
pub(crate) fn assert_complete(schema: &Value) {
    each(schema, &mut |part| {
        for word in part.keys() {
            assert!(WORDS.contains(&word.as_str()), "{word}");
        }
        if let Some(properties) = part.get("properties") {
            let mut names: Vec<&String> = properties.as_object().unwrap().keys().collect();
            names.sort_unstable();
            let mut required: Vec<&str> = part["required"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            required.sort_unstable();
            assert_eq!(names, required, "all fields are always written");
            assert_eq!(part["additionalProperties"], Value::Bool(false));
            for (name, property) in properties.as_object().unwrap() {
                assert!(
                    property.get("description").is_some(),
                    "{name} has no description"
                );
            }
        }
    });
}

/// The form is the one that `version` stands for. `sum` is of all that it says but descriptions, so that no field comes or
/// goes unnoticed.
pub(crate) fn assert_version(schema: &Value, version: u32, sum: u64) {
    let mut lines = Vec::new();
    outline(schema, "", &mut lines);
    lines.sort_unstable();
    let found = lines.concat().bytes().fold(FNV_BASIS, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    });
    assert_eq!(schema["properties"]["schema"]["const"], version);
    let id = schema["$id"].as_str().unwrap();
    assert!(id.ends_with(&format!(":{version}")), "{id}");
    assert_eq!(
        found, sum,
        "the form is not the one that schema {version} stood for: raise SCHEMA, say so in CHANGELOG.md, and write {found:#x} here"
    );
}

/// Each value with the names that lead to it.
fn outline(value: &Value, path: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| *name != "description") {
                outline(member, &format!("{path}/{name}"), lines);
            }
        }
        Value::Array(items) => {
            for item in items {
                outline(item, &format!("{path}/"), lines);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            lines.push(format!("{path} {value}\n"));
        }
    }
}

/// The hash of Fowler, Noll and Vo (FNV-1a) with 64 bits.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Calls `visit` with each schema within `schema`.
fn each(schema: &Value, visit: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    let Some(part) = schema.as_object() else {
        return;
    };
    visit(part);
    for word in ["$defs", "properties"] {
        for inner in part
            .get(word)
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|map| map.values())
        {
            each(inner, visit);
        }
    }
    for inner in part
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        each(inner, visit);
    }
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = part.get(word) {
            each(inner, visit);
        }
    }
}

/// Checks `value` against `part` of `root`; `path` says where in the report it stands.
pub(crate) fn check(root: &Value, part: &Value, value: &Value, path: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{path}: {what}: {value}"));
    if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
        let target = root
            .pointer(reference.trim_start_matches('#'))
            .ok_or(reference)?;
        check(root, target, value, path)?;
    }
    if let Some(choices) = part.get("anyOf").and_then(Value::as_array)
        && !choices
            .iter()
            .any(|choice| check(root, choice, value, path).is_ok())
    {
        let errors = choices
            .iter()
            .filter_map(|choice| check(root, choice, value, path).err());
        return Err(errors.collect::<Vec<_>>().join(" and "));
    }
    if part.get("const").is_some_and(|constant| constant != value) {
        return wrong("is not the constant");
    }
    if part
        .get("enum")
        .and_then(Value::as_array)
        .is_some_and(|words| !words.contains(value))
    {
        return wrong("is not among the values");
    }
    if let Some(kind) = part.get("type").and_then(Value::as_str)
        && !is_of(kind, value)
    {
        return wrong(&format!("is not of type {kind}"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        if let Some(items) = part.get("items") {
            check(root, items, item, &format!("{path}[{index}]"))?;
        }
    }
    let Some(object) = value.as_object() else {
        return Ok(());
    };
    for name in part
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if name.as_str().is_none_or(|name| !object.contains_key(name)) {
            return wrong(&format!("lacks {name}"));
        }
    }
    for (name, inner) in object {
        let property = part
            .get("properties")
            .and_then(|properties| properties.get(name));
        match property.or_else(|| part.get("additionalProperties")) {
            Some(Value::Bool(false)) => return wrong(&format!("has {name}, which it may not")),
            Some(property) => check(root, property, inner, &format!("{path}.{name}"))?,
            None => (),
        }
    }
    Ok(())
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the schema names the type {other}"),
    }
}
