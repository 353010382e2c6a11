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
    assert_eq!(configured.place("listen"), "--listen: listen");
    assert_eq!(configured.place("rest"), "WEIR_RELAY_REST: rest");
    assert_eq!(
        configured.place("limits.relay.tracks_max"),
        "relay.toml:4: limits.relay.tracks_max"
    );
    assert_eq!(configured.place("drain.time"), "drain.time (its default)");
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
            "relay.toml:1: tls.key: needs tls.certificate too",
        ),
        (
            "tls.certificate = \"c\"",
            "relay.toml:1: tls.certificate: needs tls.key too",
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
            "limits.quic.datagram_receive_bytes_max = 1",
            "relay.toml:1: limits.quic.datagram_receive_bytes_max: expected 0, or 2048",
        ),
    ] {
        let problems = read(file, &[], &[]).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(expected), "{problems:?}");
    }
}
