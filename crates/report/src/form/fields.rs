//! Writes and checks `docs/report-fields.md`: every field of the reports, from the descriptions of the types.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

#[test]
fn the_documentation_lists_every_field() {
    let mut page = HEAD.to_owned();
    page.push_str("\n## Relay report\n\nWritten by `weir bench --json`.\n");
    page.push_str(&fields::<crate::relay::Report>());
    page.push_str(RELAY_NOTES);
    page.push_str("\n## HTTP/3 report\n\nWritten by `weir h3 bench --json`.\n");
    page.push_str(&fields::<crate::http3::Report>());
    page.push_str(TAIL);
    let path = format!("{}/../../docs/report-fields.md", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/report-fields.md: UPDATE_DOCS=1 cargo test -p weir-report"
    );
}

/// Returns a section for each object of `T`: first those used in one place, under their path, then those used in several.
fn fields<T: JsonSchema>() -> String {
    let generator = SchemaSettings::draft2020_12().for_serialize();
    let schema = generator.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    schema.sort_all_objects();
    let mut uses = BTreeMap::new();
    count_uses(&schema, &mut uses);
    let document = Document {
        definitions: schema["$defs"].as_object().unwrap(),
        uses,
    };
    let mut text = String::new();
    document.write_object(&schema, "", &mut text);
    for (name, definition) in document.definitions {
        if document.is_shared(name) && definition.get("properties").is_some() {
            write!(text, "\n### {name}\n\n{}\n", description(definition)).unwrap();
            document.write_table(definition, &mut text);
        }
    }
    text
}

struct Document<'a> {
    definitions: &'a Map<String, Value>,
    /// Number of references to each definition.
    uses: BTreeMap<String, usize>,
}

impl Document<'_> {
    fn is_shared(&self, name: &str) -> bool {
        self.uses.get(name).is_some_and(|uses| *uses > 1)
    }

    /// Writes the table of the object at `path`, then those of the objects below it that are used only there.
    fn write_object(&self, object: &Value, path: &str, text: &mut String) {
        let about = description(object);
        if path.is_empty() {
            write!(text, "\n### Top level\n\n{about}\n").unwrap();
        } else {
            write!(text, "\n### `{path}`\n\n{about}\n").unwrap();
        }
        self.write_table(object, text);
        for (name, field) in object["properties"].as_object().unwrap() {
            let Some((target, definition)) = self.target(field) else {
                continue;
            };
            if definition.get("properties").is_some() && !self.is_shared(target) {
                let dot = if path.is_empty() { "" } else { "." };
                let list = if field.get("items").is_some() {
                    "[]"
                } else {
                    ""
                };
                self.write_object(definition, &format!("{path}{dot}{name}{list}"), text);
            }
        }
    }

    fn write_table(&self, object: &Value, text: &mut String) {
        text.push_str("\n| field | type | unit | meaning |\n|---|---|---|---|\n");
        for (name, field) in object["properties"].as_object().unwrap() {
            let (kind, unit) = (self.kind(field), unit(name));
            let mut meaning = description(field);
            if let Some((_, definition)) = self.target(field) {
                for variant in definition["oneOf"].as_array().into_iter().flatten() {
                    let alone = variant.get("const").into_iter();
                    let tag = variant["properties"]["kind"].get("const");
                    let several = variant["enum"].as_array().into_iter().flatten();
                    let values = alone.chain(tag).chain(several).filter_map(Value::as_str);
                    let value = values.collect::<Vec<_>>().join("`, `");
                    write!(meaning, "<br>`{value}`: {}", description(variant)).unwrap();
                }
            }
            writeln!(text, "| `{name}` | {kind} | {unit} | {meaning} |").unwrap();
        }
    }

    /// Returns the type of a field in words.
    fn kind(&self, field: &Value) -> String {
        if let Some(constant) = field.get("const") {
            return format!("the number {constant}");
        }
        if let Some(items) = field.get("items") {
            return format!("list of {}", self.kind(items));
        }
        if let Some((target, definition)) = self.target(field) {
            let null = if field.get("anyOf").is_some() {
                " or null"
            } else {
                ""
            };
            let variant = definition["oneOf"].get(0);
            return if variant.is_some_and(|variant| variant.get("properties").is_some()) {
                format!("object with `kind`{null}")
            } else if variant.is_some() {
                format!("string{null}")
            } else if self.is_shared(target) {
                format!("[{target}](#{}){null}", target.to_lowercase())
            } else {
                format!("object{null}")
            };
        }
        match &field["type"] {
            Value::Array(kinds) => {
                let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
                kinds.join(" or ")
            }
            Value::String(kind) if kind == "object" => "numbers by name".to_owned(),
            Value::String(kind) => kind.clone(),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                panic!("{other}: {field}")
            }
        }
    }

    /// Returns the definition that a field, or the items of its list, refer to.
    fn target(&self, field: &Value) -> Option<(&str, &Value)> {
        let reference = references(field).into_iter().next()?;
        let (name, definition) = self.definitions.get_key_value(reference)?;
        Some((name, definition))
    }
}

/// Returns the names of the definitions that a field refers to.
fn references(field: &Value) -> Vec<&str> {
    let choices = field.get("anyOf").and_then(Value::as_array);
    let items = field.get("items");
    let parts = [field]
        .into_iter()
        .chain(choices.into_iter().flatten())
        .chain(items);
    let names = parts.filter_map(|part| part.get("$ref")?.as_str()?.rsplit('/').next());
    names.collect()
}

fn count_uses(value: &Value, uses: &mut BTreeMap<String, usize>) {
    match value {
        Value::Object(members) => {
            if let Some(name) = members.get("$ref").and_then(Value::as_str) {
                let name = name.rsplit('/').next().unwrap();
                *uses.entry(name.to_owned()).or_default() += 1;
            }
            members.values().for_each(|member| count_uses(member, uses));
        }
        Value::Array(items) => items.iter().for_each(|item| count_uses(item, uses)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn description(value: &Value) -> String {
    let text = value["description"].as_str().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").replace('|', "\\|");
    // Links between items work only in rustdoc.
    text.replace("[`", "`").replace("`]", "`")
}

/// Returns the unit that the name of a field ends with.
fn unit(name: &str) -> &'static str {
    let units = [
        ("_ms", "ms"),
        ("_us", "µs"),
        ("_us_per_request", "µs"),
        ("_us_per_object", "µs"),
        ("_us_per_delivered_object", "µs"),
        ("_seconds", "s"),
        ("_s", "s"),
        ("_percent", "%"),
        ("bits_per_second", "bit/s"),
        ("_bytes", "bytes"),
        ("bytes_per_session", "bytes"),
        ("payload_size", "bytes"),
        ("per_second_max", "1/s"),
        ("s_per_second", "1/s"),
    ];
    let found = units.into_iter().filter(|(end, _)| name.ends_with(end));
    found
        .max_by_key(|(end, _)| end.len())
        .map_or("", |(_, unit)| unit)
}

const HEAD: &str = "\
# Fields of the reports

The JSON of a report always holds every field below. A value that was not measured is `null`. [report.schema.json](report.schema.json) and
[h3-report.schema.json](h3-report.schema.json) are the schemas. `schema` grows whenever a field is added, changed or removed. Times are in
milliseconds since the start of the run, unless a field says otherwise.

`cargo test -p weir-report` compares this page with the types; `UPDATE_DOCS=1 cargo test -p weir-report` writes it.
";

const RELAY_NOTES: &str = "
### Definitions

**Subscriptions.** *Good*: START and COMPLETION arrived. *Incomplete*: START arrived, but the track ended without COMPLETION (PUBLISH_DONE, or
silence). *Failed*: refused, the session was lost before COMPLETION, or no START arrived before the first object.

**A run is `partial`** (exit code 1) in the following cases. The verdict begins with the reason.

- The run was interrupted, or the relay's process ended.
- No packet came from the relay for 8 s, although clients send a ping every 5 s.
- No object arrived in the last 5 s.
- All sessions were lost, or the publisher's session was.
- The relay sent GOAWAY to the publisher.

**Objects.** A received object counts once; further copies count as `duplicates`. Objects that the relay altered (`corrupt`, `misplaced`) count as
received, and break the clause `altered=0`. `foreign` objects belong to another run, by their run number, and break nothing. Datagrams that the
publisher's connection accepted and then dropped (`expired_objects`, `crowded_out_objects`) count as sent, and are lost at every subscriber. They
include START and COMPLETION, are listed at the first datagram track, and are unknown for a lost connection.

**Slow and churning subscribers** are left out of all other figures over subscribers; `set_apart` has theirs.

**Loss** is split by position: *join* before a subscriber's first received object, *tail* after its last, *middle* between. A subscriber that received
nothing has lost everything as *tail*.

**Fairness.** Jain's index of objects received, and the worst subscriber's p99 divided by the median subscriber's.

**The steady window** runs from one second (at most a tenth of the data phase) after the last track began to the end of the first track. CPU time
per delivered object is the CPU time in it, divided by the objects delivered in it.

**Memory per session** is the resident memory with all sessions connected and no object sent, minus that before, divided by the sessions. It is null
for a relay that has served sessions before, because the relay reuses their memory: restart the relay. `compare` takes it from the warm-up run of
each process.

**Headroom** extrapolates from this run's cost per object, and is a low estimate. **Calibration** is a measurement, but of this load only.

**Limits.** At most 200 metrics of the relay are kept, with 300 values each. CPU and memory of the processes are kept in up to 2048 entries,
latency in up to 512 windows, heat maps in up to 40 × 60 cells. In a longer run, each covers twice the time.

### Other forms of a run

`weir bench report` makes them from an archive. With `--from` or `--to`, latency and its clauses cover only these seconds, all other figures the
whole run; the verdict says so.

- **CSV** of subscriptions (`--csv`) has a row for each subscription. Most columns have the names of fields of `tracks[].subscribers[]`. `section` is
  that of the track definition, `subscriber` is `index`, `lost` is `lost_objects` of the whole run, `jitter_ms` is `jitter_rfc3550_ms`.
- **CSV** of seconds (`--seconds-csv`) has a row for each track and second: objects received, their latency, and load, memory and context switches of
  the relay. An empty cell of both tables was not measured.
- **Prometheus** (`--prometheus`) has the figures that are worth comparing between runs; its `# HELP` lines explain them.
  `weir_bench_objects_lost_judged` is `slo.lost_objects`.

### Archives

`weir bench --archive` writes gzip around one JSON object per line:

| line | holds |
|---|---|
| first | `weir_archive`, with the version of the form |
| second | `report`: the relay report |
| one for each window of each track | `latency`: `track`, `from_ms`, `to_ms` and a `histogram` |
| last | `end`, with the number of lines: a file without it was cut off |

A histogram lists its buckets as `[number, count]`. Bucket 0 holds values below 1,024 ns; bucket 1 + 32·o + s begins at (32 + s)·2^(5 + o) ns.

### Records of searches

`weir bench find-max --json` writes a record with all probes. Fields of a probe that a report lacks:

| field | meaning |
|---|---|
| `objects_lost`, `objects_lost_before` | lost objects in the judged part of the probe; lost objects in the second before it |
| `ended_early` | true if the probe was ended early ([commands.md](commands.md#what-ends-a-probe-early)) |
| `stolen_percent` | share of a core that the hypervisor gave to others during the probe |
| `calibration_problem` | of the record: why the calibration at the load that broke failed |
";

const TAIL: &str = "
### Kinds of failures

A success has status 200 and the exact length: received bytes, `content-length` and `--expect-length` agree. `requests.failures` counts the rest:

| kind | the request failed because |
|---|---|
| `status_2xx`, `status_3xx`, `status_4xx`, `status_5xx`, `status_other` | its status was not 200 |
| `body_short`, `body_long` | less or more content arrived than was announced or expected |
| `incomplete` | the stream ended before the answer was complete |
| `malformed` | the answer broke a rule of HTTP |
| `stream_reset` | the server reset the stream |
| `violation` | the server broke a rule of HTTP/3, and the client closed the connection |
| `timed_out` | no packet arrived for `--idle-timeout` |
| `connection_reset`, `connection_closed`, `connection_lost` | the server sent a stateless reset; the server closed the connection; another error ended it |
| `goaway` | the server refused it with GOAWAY |
| `no_connection` | the connection for this request failed |

`connections.refusals` counts failed connections:

| kind | the connection failed because |
|---|---|
| `refused` | the server refused it |
| `timed_out` | the handshake took longer than `--handshake-timeout`, as on a port without a server |
| `tls` | the TLS handshake failed: the reason names what is wrong with the certificate, or the server's alert |
| `protocol` | the server speaks no HTTP/3, or no QUIC version 1 |
| `lost` | another error ended it during the handshake |
| `local` | this machine could not open it |
| `unusable` | the server permitted no request on it |
| `violation` | the server broke a rule of HTTP/3 while no request was open |

A failed connection is tried again after 100 ms. The client offers only AES cipher suites. A resumed handshake has no certificate to check.

## Other output

### `weir live play --json`

The form is that of the browser player's export; [vectors/live/report.json](../vectors/live/report.json) is an example. `schema` is 3.

| field | holds |
|---|---|
| `player`, `relay`, `strategy`, `buffer` | the player, the relay, the delivery strategy, the playout buffer |
| `tracks` | name, packaging and codec of the tracks of the last catalog |
| `started_us`, `ended_us` | when playing began and ended, in µs |
| `figures` | shown frames, latency, age of the picture, freezes; without latency, age and queueing for streams of other publishers |
| `catalogs_followed` | new catalogs after which the player switched tracks |
| `publishers_followed` | publishers that reconnected; their frames are numbered from the start again |
| `frames_of_former` | frames of an earlier publisher, dropped because a later one sends |
| `streams_refused`, `objects_unknown` | streams stopped at a limit; objects that could not be decoded |
| `frames` | each frame: when it was available, arrived and was shown |

### `weir live publish`

The last line of output holds `published`:

| field | holds |
|---|---|
| `frames`, `frames_written` | frames read; frames of which all bytes were given to the connection |
| `audio_objects` | objects of sound |
| `streams_reset`, `streams_overflowed` | streams that the strategy reset; streams reset because over 8 MiB waited for one, or 32 MiB for all |
| `fetches_answered` | FETCH requests answered |
| `early_over_limit` | requests refused because 16 others already waited for the tracks to be known |

### `weir link`

The first line of output holds `listening`, `to`, `rate_bits_per_second`, `profile`, `trace` (null where not given) and `delay_ms`.
The last line holds `clients`, `packets_refused` (from clients beyond `--clients-max`), `packets_orphaned` (to clients that have left), and for
each direction (`up`, `down`):

| field | holds |
|---|---|
| `offered`, `offered_bytes` | packets received |
| `delivered`, `delivered_bytes` | packets forwarded |
| `dropped_queue` | packets dropped because the queue was full |
| `lost` | packets lost by `--loss` |
| `dropped_in_flight` | packets dropped because too many were on their way |
| `queue_bytes_peak` | largest size of the queue |

### `weir h3 serve`

The last line of output holds `counters`:

| counter | counts |
|---|---|
| `connections`, `connections_refused`, `violations` | connections; those closed because there were too many from one address; those closed because the peer broke a rule |
| `requests` | requests handled |
| `answers_ok`, `answers_refused`, `answers_stopped`, `answers_stalled` | answers with status 200; with another status; stopped by the client; reset since the client accepted nothing for 30 s |
| `requests_malformed` | requests that broke a rule of HTTP, or ended before their header section |
| `requests_reset`, `requests_rejected` | requests that the client reset; requests after GOAWAY |
| `requests_excessive` | requests refused because incomplete header sections took too much memory |
";
