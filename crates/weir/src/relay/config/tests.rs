mod limits;
mod packaged;

use super::*;

fn read(
    file: &str,
    environment: &[(&str, &str)],
    flags: &[(&str, &str, &str)],
) -> Result<Configured, Vec<Problem>> {
    let variable = |name: &str| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let flags = flags
        .iter()
        .map(|(flag, key, value)| {
            let place = Place::Flag((*flag).to_owned());
            ((*key).to_owned(), Raw::Text((*value).to_owned()), place)
        })
        .collect();
    Configured::read(Some(("relay.toml", file)), variable, flags)
}

#[test]
fn settings_whose_values_differ_are_named() {
    let file = "listen = \"127.0.0.1:1\"\n[drain]\ntime = \"1s\"\n[auth.jwt]\njwks_url = \"https://a.example/?jwt=1\"\n";
    let first = read(file, &[], &[]).unwrap().config;
    let again = file.replace("\"1s\"", "\"1000ms\"");
    let same = read(&again, &[], &[]).unwrap().config;
    assert!(differences(&first, &same).is_empty());
    let other = file
        .replace("1s", "2s")
        .replace("127.0.0.1:1", "127.0.0.1:2");
    let other = read(&other, &[], &[]).unwrap().config;
    assert_eq!(differences(&first, &other), ["listen", "drain.time"]);
    // The query of a URL is not shown, but counts.
    let secret = read(&file.replace("jwt=1", "jwt=2"), &[], &[])
        .unwrap()
        .config;
    assert_eq!(differences(&first, &secret), ["auth.jwt.jwks_url"]);
}

#[test]
fn flags_win_over_environment_over_file_over_default() {
    let file = "listen = \"127.0.0.1:1\"\nrest = \"1ms\"\n[limits.relay]\ntracks_max = 7\n";
    let environment = [
        ("WEIR_RELAY_LISTEN", "127.0.0.1:2"),
        ("WEIR_RELAY_REST", "2ms"),
    ];
    let flags = [("--listen", "listen", "127.0.0.1:3")];
    let configured = read(file, &environment, &flags).unwrap();
    let config = &configured.config;
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.rest, Duration::from_millis(2));
    assert_eq!(config.limits.relay.tracks_max, 7);
    assert_eq!(config.drain, RelayConfig::default().drain);
    assert_eq!(configured.place("listen"), "--listen");
    assert_eq!(configured.place("rest"), "WEIR_RELAY_REST: rest");
    assert_eq!(
        configured.place("limits.relay.tracks_max"),
        "relay.toml:4: limits.relay.tracks_max"
    );
    assert_eq!(configured.place("drain.time"), "drain.time (its default)");
}

#[test]
fn drafts_are_limited_by_name_or_number_in_the_order_given() {
    let all = read("", &[], &[]).unwrap().config.protocols();
    assert_eq!((all.len(), all[0]), (Draft::ALL.len(), "moqt-22"));
    let file = read("drafts = [18, \"moqt-22\"]\n", &[], &[]).unwrap();
    assert_eq!(file.config.protocols(), ["moqt-18", "moqt-22"]);
    let flags = [("--set", "drafts", "moqt-19, 20")];
    let flag = read("", &[], &flags).unwrap();
    assert_eq!(flag.config.protocols(), ["moqt-19", "moqt-20"]);
    let known = "expected one of moqt-22, moqt-21, moqt-20, moqt-19, moqt-18, or its number";
    for (file, problem) in [
        ("drafts = [17]", format!("{known}, not 17")),
        ("drafts = [\"moq\"]", format!("{known}, not `moq`")),
        ("drafts = []", "expected at least one draft".to_owned()),
    ] {
        let problems = read(file, &[], &[]).unwrap_err();
        assert_eq!(problems, [format!("relay.toml:1: drafts: {problem}")]);
    }
}

#[test]
fn the_default_is_printed_in_full_and_read_again() {
    let printed = read("", &[], &[]).unwrap().print();
    let again = read(&printed, &[], &[]).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!(again.config, RelayConfig::default(), "{printed}");
    for setting in table() {
        let name = setting.key.rsplit('.').next().unwrap();
        assert!(
            printed.contains(&format!("\n{name} = "))
                || printed.contains(&format!("# {name} is not set"))
                || printed.starts_with("# UDP"),
            "{name}"
        );
    }
}

/// A limit that cannot be set is one that an operator finds out about at night.
#[test]
fn every_limit_of_every_layer_can_be_set() {
    let limits = Limits::default();
    let table = table();
    for (section, text) in [
        ("load", format!("{:#?}", limits.load)),
        ("relay", format!("{:#?}", limits.relay)),
        ("quic", format!("{:#?}", limits.quic)),
        ("session", format!("{:#?}", limits.session)),
    ] {
        let fields = text.lines().filter_map(|line| {
            let name = line.strip_prefix("    ")?.split(':').next()?;
            name.starts_with(|first: char| first.is_ascii_lowercase())
                .then_some(name)
        });
        for field in fields {
            let key = format!("limits.{section}.{field}");
            assert!(
                table.iter().any(|setting| setting.key == key),
                "{key} has no row in crates/weir/src/relay/config/table.rs"
            );
        }
    }
}

/// `UPDATE_DOCS=1 cargo test` writes what is missing.
#[test]
fn the_documentation_lists_every_setting() {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/relay-settings.md");
    let default = RelayConfig::default();
    let mut text = REFERENCE_HEAD.to_owned();
    let mut section = None;
    for setting in table() {
        let of = setting.key.rsplit_once('.').map_or("", |(of, _)| of);
        if section != Some(of) {
            section = Some(of);
            let title = if of.is_empty() {
                "At the top".to_owned()
            } else {
                format!("`[{of}]`")
            };
            text.extend([format!(
                "\n## {title}\n\n| key | default | range | meaning |\n|---|---|---|---|\n"
            )]);
        }
        let value = (setting.show)(&default, setting.shape);
        let value = value.map_or_else(|| "not set".to_owned(), |value| format!("`{value}`"));
        text.extend([format!(
            "| `{}` | {value} | {} | {} |\n",
            setting.key,
            range(&setting),
            setting.about
        )]);
    }
    text.push_str(CLAIMS);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        found, text,
        "docs/relay-settings.md: UPDATE_DOCS=1 cargo test -p weir --bin weir"
    );
}

/// Returns the range of a setting, which the error of a value outside of it names; empty if there is none.
fn range(setting: &Setting<RelayConfig>) -> String {
    let outside = Raw::Other("nothing");
    let read = (setting.read)(&mut RelayConfig::default(), &outside, setting.shape);
    let error = read.expect_err("no setting takes this");
    let expected = error.trim_end_matches(", not nothing");
    if let Some((_, range)) = expected.rsplit_once(" from ") {
        return range.to_owned();
    }
    let least = expected.rsplit_once(" of ").map(|(_, least)| least);
    least.unwrap_or_default().to_owned()
}

const CLAIMS: &str = r#"
## Claims of tokens

| claim | meaning |
|---|---|
| `put` | Namespaces in and below which the bearer may publish and announce. |
| `get` | Namespaces in and below which it may subscribe, fetch and discover. |
| `root` | Prefix of all `put` and `get`. |
| `exp` | End, in seconds since 1970; required. Requests end with it too. |
| `nbf` | Start; accepted up to `auth.jwt.clock_difference` earlier, since clocks differ. |
| `sub`, `jti` | Bearer and ID of the token, for `auth.revoked`, and for the log at level debug. |
| `own` | `true`: namespaces that `sub` publishes in are closed to other publishers while it is connected. |
| `iss`, `aud` | Must equal `auth.jwt.issuer`, `auth.jwt.audience` if set. A token with `aud` needs `audience` set. |

A namespace is `"live/alice"` (`""` is all) or a list of fields (`["live", "a/b"]`). `put` and `get` are one string or a list of namespaces.
The key decides the algorithm: ES256, ES384, EdDSA, RS256 or PS256. HS256 needs a key file, and `auth.jwt.algorithms`.
"#;

const REFERENCE_HEAD: &str = "\
# Settings of the relay

A setting comes from a key in the file (`--config relay.toml`), an environment variable, or the flag `--set KEY=VALUE`. The variable of
`drain.time` is `WEIR_RELAY_DRAIN_TIME`. Flags win over variables, variables over the file, the file over the default.

- Times are strings with units: `\"250ms\"`, `\"30s\"`, `\"5m\"`, `\"1h 30m\"`. `\"0\"` is no time.
- Bytes are numbers, or strings with `KiB`, `MiB` or `GiB`.
- Lists are `[\"a\", \"b\"]` in the file, and `a,b` elsewhere.
- With several threads, limits that say \"all threads\" are divided among the threads. Each thread has the other limits for itself.
- A value outside of its range and an unknown key are errors at start and with `--check`; an unknown variable is not. A reload does not
  read settings again.

`cargo test -p weir --bin weir` compares this page with the program; `UPDATE_DOCS=1` before it writes the page.
";

#[test]
fn keys_and_variables_are_distinct() {
    let mut names: Vec<String> = table()
        .iter()
        .map(|setting| settings::variable(VARIABLE_PREFIX, setting.key))
        .collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn values_that_do_not_fit_together_are_named_with_their_places() {
    for (file, expected) in [
        (
            "tls.key = \"k\"",
            "relay.toml:1: tls.key: needs tls.certificate (--cert) too",
        ),
        (
            "tls.certificate = \"c\"",
            "relay.toml:1: tls.certificate: needs tls.key (--key) too",
        ),
        (
            "log.format = \"xml\"",
            "relay.toml:1: log.format: expected text or json, not `xml`",
        ),
        ("log.filter = \"a=b=c\"", "relay.toml:1: log.filter: "),
        (
            "[limits.quic]\nkeep_alive = \"1m\"",
            "relay.toml:2: limits.quic.keep_alive: must be less than",
        ),
        (
            &*format!("drain.successor = \"moqt://{}\"", "a".repeat(8186)),
            "relay.toml:1: drain.successor: expected at most 8192 bytes, not 8193",
        ),
        (
            "limits.quic.datagram_receive_bytes_max = 1",
            "relay.toml:1: limits.quic.datagram_receive_bytes_max: expected 0, or at least 2048, not 1",
        ),
    ] {
        let problems = read(file, &[], &[]).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(expected), "{problems:?}");
    }
}
