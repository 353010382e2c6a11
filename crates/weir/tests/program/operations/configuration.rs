//! Settings: their sources, and the errors of bad ones.

use weir_net::terminate;

use crate::process::{Folder, Relay, refusal, weir, weir_with};

fn printed(arguments: &[&str], variables: &[(&str, &str)]) -> toml::Table {
    let mut all = vec!["relay", "--print-config"];
    all.extend(arguments);
    let output = weir_with(&all, variables);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text.parse().unwrap()
}

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let folder = Folder::new("layers");
    let text = "listen = \"127.0.0.1:1001\"\ncores = [3]\n[drain]\ntime = \"1m\"\ndelay = \"2s\"\n";
    let file = folder.write("relay.toml", text);
    let variables = [
        ("WEIR_RELAY_CONFIG", file.as_str()),
        ("WEIR_RELAY_LISTEN", "127.0.0.1:1002"),
        ("WEIR_RELAY_DRAIN_DELAY", "3s"),
        ("WEIR_RELAY_LIMITS_RELAY_TRACKS_MAX", "77"),
    ];
    let flags = ["--listen", "127.0.0.1:1003", "--set", "drain.delay=4s"];
    let table = printed(&flags, &variables);
    assert_eq!(table["listen"].as_str(), Some("127.0.0.1:1003"));
    assert_eq!(table["cores"][0].as_integer(), Some(3));
    assert_eq!(table["drain"]["time"].as_str(), Some("1m"));
    assert_eq!(table["drain"]["delay"].as_str(), Some("4s"));
    let limits = &table["limits"];
    assert_eq!(limits["relay"]["tracks_max"].as_integer(), Some(77));
    assert_eq!(limits["quic"]["idle_timeout"].as_str(), Some("30s"));

    // The printed settings are a file that gives the same settings.
    let again = folder.write("printed.toml", &table.to_string());
    assert_eq!(printed(&["--config", &again], &[]), table);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let folder = Folder::new("wrong");
    let file = folder.write(
        "relay.toml",
        "cores = [1]\n[drain]\ntimes = \"1m\"\ntime = 5\n",
    );
    let text = refusal(&["relay", "--config", &file]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].ends_with("relay.toml:3: unknown key `drain.times`; did you mean `drain.time`?"),
        "{text}"
    );
    assert!(
        lines[1].contains("relay.toml:4: drain.time: expected a time"),
        "{text}"
    );
    for (arguments, expected) in [
        (
            &["--listen", "here"][..],
            "weir: --listen: expected an IP address",
        ),
        (
            &["--set", "cores"],
            "weir: --set: expected KEY=VALUE, not `cores`",
        ),
        (
            &["--set", "core=1"],
            "weir: --set: unknown key `core`; did you mean `cores`?",
        ),
        (&["--config", "no.toml"], "weir: no.toml: cannot be opened"),
        (
            &["--cert", "c.pem"],
            "weir: --cert: tls.certificate: needs tls.key (--key) too",
        ),
    ] {
        let mut all = vec!["relay"];
        all.extend(arguments);
        let text = refusal(&all);
        assert!(
            text.starts_with(expected),
            "{expected:?} is not in {text:?}"
        );
    }
}

#[test]
fn a_check_looks_at_files_and_addresses_and_disturbs_no_relay() {
    let folder = Folder::new("check");
    assert!(weir(&["relay", "--check"]).status.success());

    let relay = Relay::start(&[]);
    let listen = relay.address().to_string();
    assert!(
        weir(&["relay", "--check", "--listen", &listen])
            .status
            .success()
    );

    let text = refusal(&["relay", "--check", "--listen", "192.0.2.1:4443"]);
    assert!(
        text.contains("--listen: cannot bind to 192.0.2.1:4443: "),
        "{text}"
    );
    let text = refusal(&["relay", "--check", "--admin", "192.0.2.1:9443"]);
    assert!(
        text.contains("--admin: admin.listen: cannot bind to 192.0.2.1:9443: "),
        "{text}"
    );

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain = folder.write("chain.pem", &made.cert.pem());
    let key = folder.write("key.pem", &made.signing_key.serialize_pem());
    let wrong = folder.write("wrong.pem", &other.signing_key.serialize_pem());
    let check = |key: &str| weir(&["relay", "--check", "--cert", &chain, "--key", key]);
    assert!(check(&key).status.success());
    for (bad, place) in [
        (&*wrong, "--cert: tls.certificate: "),
        (&*chain, "--key: tls.key: "),
        ("no.pem", "--key: tls.key: "),
    ] {
        let output = check(bad);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(place), "{text}");
    }
}

#[test]
fn a_relay_takes_its_limits_from_the_file() {
    let folder = Folder::new("limits");
    let file = folder.write(
        "relay.toml",
        "[log]\nfilter = \"info\"\nformat = \"json\"\n",
    );
    let mut relay = Relay::start(&["--config", &file]);
    terminate(relay.pid());
    let (code, last) = relay.wait();
    assert_eq!(code, Some(0));
    assert_eq!(last["counters"]["sessions"], 0);
}
