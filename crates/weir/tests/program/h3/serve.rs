//! `weir h3 serve` as a process: its content, the effect of its flags, refused flags, and its end.

use std::fs;

use serde_json::Value;

use super::stage::{Folder, Server, bench, json, text, weir};

/// Returns the report of some requests, whatever time they take; none may fail.
fn loaded(server: &Server, path: &str, arguments: &[&str]) -> Value {
    let folder = Folder::new(&format!("loaded-{}", server.child.id()));
    let file = folder.file("report.json");
    let mut all = vec![
        "--max-requests-per-thread=24",
        "--max-concurrent-conns=4",
        "--duration=60",
        "--handshake-timeout=30",
        "--idle-timeout=30",
        "--json",
        file.to_str().expect("a plain name"),
    ];
    all.extend(arguments);
    let output = bench(&server.url(path), &all);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = json(&file);
    assert_eq!(report["requests"]["successes"], 24, "{report}");
    assert_eq!(report["requests"]["failed"], 0, "{report}");
    assert_eq!(report["connections"]["refused"], 0, "{report}");
    report
}

#[test]
fn files_of_a_folder_and_contents_on_demand() {
    let folder = Folder::new("files");
    fs::create_dir_all(folder.file("deep")).unwrap();
    fs::write(folder.file("deep/file.bin"), vec![7; 12_345]).unwrap();
    fs::write(folder.file("15k"), b"a file of this name").unwrap();
    let server = Server::with(&["--root", folder.path()]);
    assert_eq!(server.ready["files"], 2);
    for (path, length) in [
        ("/deep/file.bin", "--expect-length=12345"),
        ("/15k", "--expect-length=19"),
        ("/5k", "--expect-length=5120"),
        ("/1m", "--expect-length=1048576"),
    ] {
        loaded(&server, path, &[length]);
    }
}

#[test]
fn every_way_to_serve_serves() {
    for (arguments, is_retry) in [
        (&["--threads=2"][..], false),
        (&["--retry"], true),
        (&["--no-gso"], false),
        (&["--no-resumption"], false),
        (&["--max-udp-payload-size=0"], false),
        (&["--rest=200us", "--requests-max=1"], false),
    ] {
        let server = Server::with(arguments);
        let report = loaded(&server, "/15k", &["--expect-length=15360"]);
        let connections = &report["connections"];
        let retries = connections["retries"].as_u64().unwrap();
        assert_eq!(retries > 0, is_retry, "{arguments:?}: {connections}");
        assert_eq!(connections["tls_version"], "1.3");
        assert_eq!(connections["cipher_suites"][0], "TLS_AES_128_GCM_SHA256");
        assert_eq!(connections["certificate_key"], "ECDSA P-256");
    }
}

#[test]
fn connections_are_resumed_unless_the_server_has_no_memory() {
    let (with, without) = (Server::start(), Server::with(&["--no-resumption"]));
    for way in ["resumed", "0rtt"] {
        let way = format!("--short={way}");
        let resumed = |server| {
            let report = loaded(server, "/1k", &[&way]);
            report["connections"]["resumed"].as_u64().unwrap()
        };
        assert!(resumed(&with) > 0, "{way}");
        assert_eq!(resumed(&without), 0, "{way}");
    }
}

#[test]
fn it_ends_cleanly_when_it_is_asked_to() {
    for threads in ["--threads=1", "--threads=2"] {
        let server = Server::with(&[threads]);
        let report = loaded(&server, "/1k", &[]);
        let (status, rest) = server.terminate();
        assert_eq!(status.code(), Some(0), "{threads}");
        let last: Value = serde_json::from_str(&rest).expect("one line of JSON");
        let answered = last["counters"]["requests"].as_u64();
        let successes = report["requests"]["successes"].as_u64();
        assert!(answered.is_some() && answered >= successes, "{rest}");
    }
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let folder = Folder::new("refused");
    let (no_certificate, file) = (folder.file("no.pem"), folder.file("file"));
    fs::write(&no_certificate, b"this is no certificate").unwrap();
    fs::write(&file, b"1").unwrap();
    std::os::unix::fs::symlink("/etc", folder.file("out")).unwrap();
    let (no_certificate, file) = (no_certificate.to_str().unwrap(), file.to_str().unwrap());
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, expected) in [
        (
            &["--root", "/no/such/folder"][..],
            "--root: /no/such/folder",
        ),
        (&["--root", file], "is not a folder"),
        (&["--root", folder.path()], "leads out of"),
        (&["--cert", no_certificate], "--key"),
        (
            &["--cert", no_certificate, "--key", no_certificate],
            "--cert, --key",
        ),
        (
            &["--threads=0"],
            "'--threads <COUNT>': expected a whole number from 1 to 255",
        ),
        (
            &["--threads=2", "--core=0"],
            "--cores: expected one core for each",
        ),
        (&["--core=4096"], "core 4096"),
        (
            &["--max-udp-payload-size=1199"],
            "--max-udp-payload-size: expected 0",
        ),
        (&["--listen", "nowhere"], "--listen"),
        (&["--listen", &taken], "--listen"),
        (&["--idle-timeout=0s"], "--idle-timeout"),
        (&["--idle-timeout=1000000years"], "--idle-timeout"),
        (&["--rest=1e19"], "--rest"),
        (&["--files-max=0", "--root", folder.path()], "--root"),
    ] {
        let mut command = weir();
        command.args(["h3", "serve"]);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let output = command.args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}
