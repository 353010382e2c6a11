//! `docs/report-fields.md`: every field of the reports, from the types' own descriptions.

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

/// A section for each object of `T`: first those that have one place, each under its path, then those with several.
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
    /// How often each definition is referred to.
    uses: BTreeMap<String, usize>,
}

impl Document<'_> {
    fn is_shared(&self, name: &str) -> bool {
        self.uses.get(name).is_some_and(|uses| *uses > 1)
    }

    /// Writes the table of the object at `path`, then those of the objects below it that stand nowhere else.
    fn write_object(&self, object: &Value, path: &str, text: &mut String) {
        let about = description(object);
        if path.is_empty() {
            write!(text, "\n### The whole\n\n{about}\n").unwrap();
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

    /// The type of a field in words.
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

    /// The definition that a field refers to, in a list too.
    fn target(&self, field: &Value) -> Option<(&str, &Value)> {
        let reference = references(field).into_iter().next()?;
        let (name, definition) = self.definitions.get_key_value(reference)?;
        Some((name, definition))
    }
}

/// The definitions that a field refers to itself.
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
    // Links between items say nothing outside of their documentation.
    text.replace("[`", "`").replace("`]", "`")
}

/// The unit that the name of a field ends with.
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

The JSON of a report holds every field below, always; what was not measured is `null`. [report.schema.json](report.schema.json) and
[h3-report.schema.json](h3-report.schema.json) are the schemas. `schema` grows whenever a field is added, changed or removed. Times are in
milliseconds since the start of the run, unless a field says otherwise.

`cargo test -p weir-report` compares this page with the types; `UPDATE_DOCS=1` before it writes the page.
";

const RELAY_NOTES: &str = "
### Definitions

**Subscriptions.** *Good*: START and COMPLETION were seen. *Incomplete*: the track ended otherwise (PUBLISH_DONE, silence, a lost session).
*Failed*: refused, or data came before any START.

**A run is `partial`** (exit code 1), and the verdict begins with the reason, if

- it was interrupted, or the relay's process ended,
- no packet came from the relay for 8 s, although clients send a ping every 5 s,
- nothing arrived in the last 5 s,
- all sessions were lost, or the publisher's was,
- the relay sent the publisher away (GOAWAY).

**Objects.** A received object counts once, whatever copies come. Objects that the relay altered (`corrupt`, `misplaced`) count as received, and
break the clause `altered=0`. `foreign` objects are of another run, by their run number, and break nothing. Datagrams that the publisher's
connection took and then dropped (`expired_objects`, `crowded_out_objects`) count as sent, and are lost at every subscriber. They include START
and COMPLETION, are listed at the first datagram track, and are unknown for a lost connection.

**Slow and churning subscribers** are set apart: figures over subscribers leave them out. Loss is split by position: *join* before the first object
received, *tail* after the last, *middle* between. A subscriber that received nothing has lost everything as *tail*.

**Fairness.** Jain's index of objects received, and the worst subscriber's p99 divided by the median subscriber's.

**The steady window** runs from one second (at most a tenth of the data phase) after the last track began to the end of the first track. CPU time
per delivered object is the CPU time in it, divided by the objects delivered in it.

**Memory per session** is the resident memory with all sessions connected and nothing sent, less that before, divided by the sessions. It is null for
a relay that had served others, since it uses their memory again: `compare` takes it from the warm-up run of each process.

**Headroom** extrapolates from this run's cost per object, on the low side. **Calibration** is a measurement, but of this load only.

**Limits.** At most 200 of the relay's own metrics are kept, with 300 moments each. CPU and memory of the processes are kept at up to 2048
moments, latency in up to 512 windows, heat maps in up to 40 × 60 cells. In a longer run each stands for twice the time.

### Other forms of a run

`weir bench report` makes them from an archive.

- **CSV** (`--csv`) has a row for each subscription, `--seconds-csv` one for each track and second. Both lack heat maps, the relay's counters and
  metrics, the service level (`lost` is that of the whole run) and the calibration.
- **Prometheus** (`--prometheus`) has what is worth comparing between runs: whether the level held and the generator was healthy, counts, quantiles of
  latency, and the relay's cost. `weir_bench_objects_lost_judged` is `slo.lost_objects`.

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
| `objects_lost`, `objects_lost_before` | objects lost of those that are judged; objects lost in the second before |
| `ended_early` | why the probe was ended before its time ([commands.md](commands.md#what-ends-a-probe-early)) |
| `stolen_percent` | share of a core that the hypervisor gave to others meanwhile |
| `calibration_problem` | of the record: why the load that broke could not be put on a null relay |
";

const TAIL: &str = "
### Kinds of failures

A success is a status 200 with the exact length: received bytes, `content-length` and `--expect-length` agree. `requests.failures` counts all else:

| kind | the request failed because |
|---|---|
| `status_2xx`, `status_3xx`, `status_4xx`, `status_5xx`, `status_other` | its status was not 200 |
| `body_short`, `body_long` | less or more content came than was announced or expected |
| `incomplete` | the stream ended within the answer |
| `malformed` | the answer broke a rule of HTTP |
| `stream_reset` | the server reset the stream |
| `violation` | the server broke a rule of HTTP/3, and the client closed the connection |
| `timed_out` | nothing came for `--idle-timeout` |
| `connection_reset`, `connection_closed`, `connection_lost` | the server sent a stateless reset; closed the connection; the connection broke otherwise |
| `goaway` | the server refused it with GOAWAY |
| `no_connection` | the connection for this one request could not be made |

`connections.refusals` counts connections that could not be made or used:

| kind | the connection failed because |
|---|---|
| `refused` | the server refused it |
| `timed_out` | the handshake took longer than `--handshake-timeout`; a port without a server looks like this |
| `tls` | the TLS handshake failed: the reason names what is wrong with the certificate, or the server's alert |
| `protocol` | the server speaks no HTTP/3, or no QUIC version 1 |
| `lost` | it broke during the handshake otherwise |
| `local` | it could not be begun on this machine |
| `unusable` | the server let no request be sent on it |
| `violation` | the server broke a rule of HTTP/3 without a request to answer |

A failed connection is tried again after 100 ms. The client offers AES cipher suites only. A resumed handshake shows no certificate, so none is
checked in it.

## Other output

### `weir live play --json`

The form is that of the browser player's export; [vectors/live/report.json](../vectors/live/report.json) is an example. `schema` is 3.

| field | holds |
|---|---|
| `player`, `relay`, `strategy`, `buffer` | who played, from where, by which strategy, with which buffer |
| `tracks` | name, packaging and codec of the tracks of the last catalog |
| `started_us`, `ended_us` | when playing began and ended, in µs |
| `figures` | shown frames, latency, age of the picture, freezes; without latency, age and queueing for streams of other publishers |
| `catalogs_followed` | new catalogs after which other tracks were played |
| `publishers_followed` | publishers that came back, and whose frames are counted anew |
| `frames_of_former` | frames of an earlier publisher, dropped since a later one is heard |
| `streams_refused`, `objects_unknown` | streams stopped at a limit; objects that were not understood |
| `frames` | each frame: when it was available, arrived and was shown |

### `weir live publish`

The last line of output holds `published`:

| field | holds |
|---|---|
| `frames`, `frames_written` | frames read; frames of which all bytes were given to the connection |
| `audio_objects` | objects of sound |
| `streams_reset`, `streams_overflowed` | streams that the strategy reset; streams reset since over 8 MiB waited for one, or 32 MiB for all |
| `fetches_answered` | FETCH requests answered |
| `early_over_limit` | requests refused since 16 others waited already until the tracks were known |

### `weir link`

The last line of output holds `clients`, `packets_refused` (of clients beyond `--clients-max`), `packets_orphaned` (for clients that are gone), and of each
direction (`up`, `down`):

| field | holds |
|---|---|
| `offered`, `offered_bytes` | packets that came |
| `delivered`, `delivered_bytes` | packets that were passed on |
| `dropped_queue` | packets that the queue had no room for |
| `lost` | packets lost by `--loss` |
| `dropped_in_flight` | packets beyond the limit of those on their way |
| `queue_bytes_peak` | the longest queue |

### `weir h3 serve`

The last line of output holds `counters`:

| counter | counts |
|---|---|
| `connections`, `violations` | connections; connections closed because the peer broke a rule |
| `requests` | requests looked at |
| `answers_ok`, `answers_refused`, `answers_stopped` | answers with status 200; with another status; stopped by the client |
| `requests_malformed` | requests that broke a rule of HTTP, or ended before their head |
| `requests_reset`, `requests_rejected` | requests that the client reset; that came after GOAWAY |
| `requests_excessive` | requests cut off because incomplete headers took too much memory |
";
