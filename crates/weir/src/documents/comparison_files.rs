//! `docs/comparison-files.md`: every key of the files of `weir bench compare` and `weir h3 compare`, from the types that the
//! program reads the files into.

use std::fmt::Write as _;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use super::{assert_kept, cell};
use crate::{
    h3::{scenario::FILES, server_file::ServerEntry, server_file::ServerFile},
    harness::contender::Entry,
    run::relay_file::{RelayEntry, RelayFile},
};

#[test]
fn the_documentation_lists_every_key_of_a_comparison_file() {
    let relays = Form::of::<RelayFile>();
    let servers = Form::of::<ServerFile>();
    let mut page = HEAD.to_owned();
    page.push_str("\n## `weir bench compare`\n\n[profiles/relays.toml](../profiles/relays.toml) is an example.\n\n");
    page.push_str(&relays.table("RelayFile"));
    page.push_str("\n### `[[relay]]`\n\n");
    page.push_str(&relays.table("RelayEntry"));
    page.push_str(&placeholders::<RelayEntry>());
    page.push_str("\n### `[find_max]`\n\nThe search of `--find-max`.\n\n");
    page.push_str(&relays.table("SearchTable"));
    page.push_str("\n## `weir h3 compare`\n\n[profiles/contenders.toml](../profiles/contenders.toml) is an example.\n\n");
    page.push_str(&servers.table("ServerFile"));
    page.push_str("\n### `[[server]]`\n\n");
    page.push_str(&servers.table("ServerEntry"));
    page.push_str(&placeholders::<ServerEntry>());
    page.push_str(SERVERS);
    let files = FILES.map(|(name, _)| format!("`{name}`")).join(", ");
    write!(
        page,
        "\n### Scenarios\n\n{}",
        SCENARIOS.replace("FILES", &files)
    )
    .unwrap();
    page.push_str(JSON);
    assert_kept("comparison-files.md", &page);
}

/// The schema of a file.
struct Form {
    schema: Value,
}

impl Form {
    fn of<T: JsonSchema>() -> Self {
        let generator = SchemaSettings::draft2020_12().into_generator();
        let mut schema = generator.into_root_schema_for::<T>().to_value();
        schema.sort_all_objects();
        Self { schema }
    }

    /// Returns the type `name`: the file itself, or one that it refers to.
    fn definition(&self, name: &str) -> &Value {
        let is_root = self.schema["title"] == name;
        let definition = if is_root {
            &self.schema
        } else {
            &self.schema["$defs"][name]
        };
        assert!(definition["properties"].is_object(), "there is no {name}");
        definition
    }

    /// Returns the table of the keys of a type: first those that are required.
    fn table(&self, name: &str) -> String {
        let definition = self.definition(name);
        let required = definition["required"].as_array();
        let is_required =
            |key: &str| required.is_some_and(|keys| keys.iter().any(|one| one == key));
        let mut keys: Vec<_> = definition["properties"]
            .as_object()
            .unwrap()
            .iter()
            .collect();
        keys.sort_by_key(|(key, _)| !is_required(key));
        let mut table = "| key | value | default | meaning |\n|---|---|---|---|\n".to_owned();
        for (key, field) in keys {
            let about = field["description"].as_str();
            let about = about.unwrap_or_else(|| panic!("{name}.{key} has no description"));
            let about = cell(about);
            let (about, stated) = about.rsplit_once(" Default: ").unwrap_or((&about, ""));
            let Some(kind) = self.kind(field) else {
                continue;
            };
            let default = match field.get("default") {
                _ if is_required(key) => "required".to_owned(),
                Some(value) if stated.is_empty() && !is_empty(value) => format!("`{value}`"),
                Some(_) | None => stated.trim_end_matches('.').to_owned(),
            };
            writeln!(table, "| `{key}` | {kind} | {default} | {about} |").unwrap();
        }
        table
    }

    /// Returns the type of a key's value in words; `None` for a table, which has a section of its own.
    fn kind(&self, field: &Value) -> Option<String> {
        if let Some(items) = field.get("items") {
            let items = self.kind(items)?;
            return Some(format!("list of {items}s"));
        }
        let choice = field["anyOf"].get(0).unwrap_or(field);
        if let Some(name) = choice["$ref"].as_str() {
            let name = name.rsplit('/').next()?;
            let variants = self.schema["$defs"][name]["oneOf"].as_array()?;
            let names = variants
                .iter()
                .map(|variant| format!("`{}`", variant["const"]));
            return Some(names.collect::<Vec<_>>().join(" or "));
        }
        let kind = field["type"].get(0).unwrap_or_else(|| &field["type"]);
        let words = match kind.as_str()? {
            "integer" => "whole number",
            "boolean" => "`true` or `false`",
            kind => kind,
        };
        Some(words.to_owned())
    }
}

/// Returns true if a default says nothing: null, or an empty list.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Returns the line that lists the placeholders of `start`.
fn placeholders<E: Entry>() -> String {
    let known = E::PLACEHOLDERS.iter().map(|place| {
        let meaning = MEANINGS.iter().find(|(name, _)| name == place);
        let (_, meaning) = meaning.unwrap_or_else(|| panic!("{place} is not described"));
        format!("`{place}` ({meaning})")
    });
    let known = known.collect::<Vec<_>>().join(", ");
    format!("\n`start` may contain {known}.\n")
}

/// The value of each placeholder.
const MEANINGS: [(&str, &str); 7] = [
    ("{weir}", "this program"),
    (
        "{cert}",
        "file of the certificate chain, PEM: `cert`, or one made for the comparison",
    ),
    ("{key}", "file of its private key, PEM"),
    ("{core}", "its core"),
    ("{port}", "its UDP port"),
    (
        "{root}",
        "folder of the files to serve, one for each size below",
    ),
    ("{folder}", "folder for files of its own"),
];

const HEAD: &str = "\
# Files of comparisons

`weir bench compare` and `weir h3 compare` read a TOML file. The guides are [bench.md](bench.md#several-relays) and
[h3.md](h3.md#compare-two-servers).

- Keys of the whole comparison stand above the first `[[relay]]` or `[[server]]`.
- Program and arguments are a list: `[\"program\", \"--flag\", \"value\"]`. A flag and its value are two elements.
- The program must stay in the foreground. A relative path counts from the folder where you call `weir`.
- weir pins the program and its children to its core, adds their CPU times, and ends them with SIGTERM, after 5 s with SIGKILL.
- `arguments` cannot hold flags that the comparison sets; the error names the key to use instead.

`cargo test -p weir --bin weir` compares this page with the program; `UPDATE_DOCS=1` before it writes the page.
";

const SERVERS: &str = "
The order and the names of the arguments are the server's own. gtlsserver of ngtcp2, for example, takes address, port, key and
certificate:

```toml
[[server]]
name = \"gtlsserver\"
start = [\"gtlsserver\", \"-q\", \"-d\", \"{root}\", \"127.0.0.1\", \"{port}\", \"{key}\", \"{cert}\"]
version = [\"sh\", \"-c\", \"dpkg-query -W -f 'gtlsserver ${Version}' ngtcp2-server\"]
note = \"ngtcp2 with GnuTLS\"
```

- A server that cannot serve `{root}` needs files of its own with the names and exact sizes below, where `path` finds them.
- The made certificate is for `localhost` and no authority (CA:FALSE, ECDSA P-256). With `cert` and `key`, yours may be signed by
  itself; the client does not check who signed it.
- A server that needs a file of settings writes it first: `[\"sh\", \"-c\", \"printf … > {folder}/conf && exec server -c {folder}/conf\"]`.
  Without `exec`, the shell stands between weir and the server.

[profiles/contenders.toml](../profiles/contenders.toml) has ten servers with their settings. In a checkout, `make contenders` builds
tquic_server, Caddy, quinn-h3, tokio-quiche-h3 and quic-go, into `target/peers/bin`; the others:

| server | to have it in `PATH` |
|---|---|
| gtlsserver (ngtcp2) | `apt install ngtcp2-server`, and `/usr/sbin` |
| nginx | `apt install nginx` of Debian 13 (1.26, with HTTP/3), and `/usr/sbin` |
| h2o, LSQUIC | `h2o`, `http_server`: built as [h2o](https://github.com/h2o/h2o), [LSQUIC](https://github.com/litespeedtech/lsquic) say |

A server that is not there is named in a note, the others are measured, and the exit code is 1.
";

const JSON: &str = "
### JSON

`--json FILE` writes what the tables are made of: `setting` (the comparison in words), `testbed` (the machine), `servers` (name,
version, note), `scenarios`, and `broken_off` (why it ended early, or null). Each of `scenarios` has `name`, `load` and
`standings`, the servers in the order of the table. A standing has medians with `min` and `max` over the rounds, and in `entry.runs`
each run: `requests_per_second`, `cpu_us_per_request`, `server_percent`, `client_percent`, `limit`, `connections`,
`latency_p99_ms`, `handshake_p50_ms`, `successes`, `failed`, `receive_errors`, `stolen_percent`. They mean what they do in a
[report](report-fields.md); `limit` is `server`, `client`, `rate`, `rate_missed`, `neither`, `unknown` or `nothing`.
";

const SCENARIOS: &str = "\
| scenario | load |
|---|---|
| FILES | 10 connections or more, with 10 requests each in flight |
| with `-short`, `-resumed`, `-0rtt` appended | 100 connections or more, with one request each: full, resumed or 0-RTT handshakes |

A `k` is 1024 bytes, an `m` 1,048,576. \"Or more\": short runs double the connections until the server or a thread of the client is
95 % busy, up to 64 times (10 to 640, 100 to 6400). They stop before if requests fail or the rate falls by 30 %. The
comparison then runs with the number at which the server was busy, else with that of the most requests, so the column connections
may say 10. With `--rate`, a fixed number of connections, `loss` or `round_trip_ms`, every run has the smallest number.
";
