//! JSON Schemas of reports, generated from their types and compared with the files in `docs/`.

use jsonschema::Validator;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Checks that `docs/NAME` is the schema of `T`, and that the form has not changed without a new `version`. With
/// `UPDATE_DOCS` in the environment, writes the file. `sum` is a checksum of the schema without descriptions.
pub(crate) fn kept<T: JsonSchema>(name: &str, version: u32, sum: u64) -> Validator {
    let generator = SchemaSettings::draft2020_12().for_serialize();
    let schema = generator.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    // The order of maps depends on the features with which serde_json is built.
    schema.sort_all_objects();
    assert_complete(&schema);
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n";
    // Links between items work only in rustdoc.
    let text = text.replace("[`", "`").replace("`]", "`");
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).expect(name);
    }
    let kept = std::fs::read_to_string(&path).expect(name);
    assert!(
        kept == text,
        "docs/{name}: UPDATE_DOCS=1 cargo test -p weir-report"
    );
    let mut lines = Vec::new();
    outline(&schema, "", &mut lines);
    lines.sort_unstable();
    let found = lines.concat().bytes().fold(FNV_BASIS, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    });
    assert_eq!(schema["properties"]["schema"]["const"], version);
    assert_eq!(
        found, sum,
        "the form changed without a new schema: raise SCHEMA above {version}, add it to CHANGELOG.md, and set the checksum {found:#x}"
    );
    jsonschema::validator_for(&schema).expect("a valid schema")
}

/// Checks that every field has a description and is required, and that no other field is allowed.
fn assert_complete(schema: &Value) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let required = schema["required"].as_array().expect("required fields");
        assert_eq!(required.len(), properties.len(), "{schema}");
        assert_eq!(schema["additionalProperties"], Value::Bool(false));
    }
    for (name, part) in schema.as_object().into_iter().flatten() {
        if name == "properties" {
            for (name, property) in part.as_object().into_iter().flatten() {
                let is_constant = property.get("const").is_some();
                assert!(
                    is_constant || property.get("description").is_some(),
                    "{name} has no description"
                );
                assert_complete(property);
            }
        } else if name == "$defs" {
            part.as_object()
                .into_iter()
                .flat_map(|defs| defs.values())
                .for_each(assert_complete);
        } else {
            part.as_array()
                .into_iter()
                .flatten()
                .for_each(assert_complete);
            assert_complete(part);
        }
    }
}

/// Collects each value with its path.
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
