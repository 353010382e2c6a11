//! Effects of the flags of client and server.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::Value;

use crate::process::wait_for;

use super::stage::{Folder, Server, bench, core, json, succeed, text, weir};

/// Sends SIGINT.
fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.unwrap().success());
}

/// Returns the report of a run without failures.
fn good(name: &str, url: &str, arguments: &[&str]) -> Value {
    let folder = Folder::new(name);
    let file = folder.file("report.json");
    let mut all = vec!["--handshake-timeout=30", "--idle-timeout=30", "--json"];
    all.push(file.to_str().expect("a plain name"));
    all.extend(arguments);
    let output = bench(url, &all);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = json(&file);
    assert_eq!(report["requests"]["failed"], 0, "{report}");
    assert_eq!(report["connections"]["refused"], 0, "{report}");
    report
}

#[test]
fn threads_connections_and_requests_are_as_many_as_asked_for() {
    let server = Server::start();
    let url = server.url("/1k");
    let threads = ["--threads=2", "--max-concurrent-conns=2"];
    // So many that every connection is there before the others have made all requests.
    let limit = ["--max-requests-per-thread=2000", "--duration=60"];
    let report = good("threads", &url, &[threads, limit].concat());
    assert_eq!(report["requests"]["successes"], 4000);
    assert_eq!(report["connections"]["handshakes"], 4);
    assert_eq!(report["client"]["threads"].as_array().unwrap().len(), 2);
    for distribution in [
        &report["latency"]["overall"],
        &report["connections"]["handshake"],
    ] {
        let of = |field: &str| distribution[field].as_f64().unwrap();
        assert!(0.0 < of("p50_ms") && of("p50_ms") <= of("p99_ms") && of("p99_ms") <= of("max_ms"));
    }

    let one = ["--max-concurrent-conns=1", "--max-concurrent-requests=1"];
    let limit = ["--max-requests-per-conn=4", "--max-requests-per-thread=16"];
    let report = good(
        "replaced",
        &url,
        &[&one[..], &limit, &["--duration=60"]].concat(),
    );
    assert_eq!(report["connections"]["handshakes"], 4);

    let limit = [
        "--short=full",
        "--max-requests-per-thread=8",
        "--duration=60",
    ];
    let report = good("short", &url, &limit);
    assert_eq!(report["connections"]["handshakes"], 8);
    assert_eq!(report["connections"]["resumed"], 0);
    assert_eq!(report["run"]["handshake"], "full");
}

#[test]
fn an_open_loop_sends_what_is_due() {
    let server = Server::start();
    let report = good("rate", &server.url("/1k"), &["--rate=40", "--duration=2"]);
    let count = |field: &str| report["requests"][field].as_u64().unwrap();
    assert!(
        (count("sent") + count("unsent")).abs_diff(80) <= 1,
        "{report}"
    );
    assert_eq!(report["run"]["rate_per_second"], 40.0);
}

#[test]
fn a_warm_up_does_not_count() {
    // On a machine that is busy elsewhere, a short run can pass before the first response.
    let counted = [(1, 1), (4, 10), (16, 60)].into_iter().any(|run| {
        let (answered, sent) = answered_and_counted(run);
        assert!(answered >= sent, "{answered} responses to {sent} requests");
        answered > sent
    });
    assert!(counted, "no response in a warm-up of 16 s");
}

/// Runs a client with a warm-up and a duration, in seconds. Returns the requests that the server answered, and those that the
/// report counts; 0 and 0 if no response came in time.
fn answered_and_counted((warm_up, duration): (u32, u32)) -> (u64, u64) {
    let server = Server::start();
    let folder = Folder::new("warm");
    let file = folder.file("report.json");
    let core = core();
    let arguments = [
        &format!("--warm-up={warm_up}"),
        &format!("--duration={duration}"),
        "--handshake-timeout=30",
        "--idle-timeout=30",
        "--sockets=2",
        "--no-gro",
        &format!("--cores={core}"),
        "--json",
        file.to_str().expect("a plain name"),
    ];
    if bench(&server.url("/1k"), &arguments).status.code() != Some(0) {
        return (0, 0);
    }
    let report = json(&file);
    assert_eq!(report["connections"]["begun"], 10);
    assert_eq!(report["run"]["sockets"], 2);
    assert_eq!(report["run"]["gro"], false);
    assert_eq!(report["client"]["cores"][0], core);
    let (_, rest) = server.terminate();
    let last: Value = serde_json::from_str(&rest).unwrap();
    let answered = last["counters"]["requests"].as_u64().unwrap();
    (answered, report["requests"]["sent"].as_u64().unwrap())
}

#[test]
fn a_certificate_that_is_trusted_is_taken() {
    let folder = Folder::new("trusted");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (folder.file("chain.pem"), folder.file("key.pem"));
    fs::write(&chain, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let server = Server::with(&["--cert", chain, "--key", key]);
    let hash = server.ready["certificate_sha256"].as_str().unwrap();
    let url = format!("https://localhost:{}/1k", server.port());
    let connect = format!("--connect=127.0.0.1:{}", server.port());
    for trust in [["--ca", chain], ["--certificate-hash", hash]] {
        let mut command = weir();
        command.args(["h3", "bench", &url, &connect, "--max-requests-per-thread=8"]);
        let output = command.arg("--duration=60").args(trust).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    }
}

#[test]
fn a_server_is_found_by_the_name_of_its_program() {
    let folder = Folder::new("named");
    let name = format!("wh3-{}", std::process::id());
    let program = folder.file(&name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
    let server = Server::of(Command::new(program), &["h3", "serve"], &[]);
    let named = format!("--server-process={name}");
    let report = good("by-name", &server.url("/1k"), &[&named, "--duration=1"]);
    assert_eq!(report["server"]["pids"][0], server.child.id());
}

#[test]
fn several_processes_of_a_server_are_watched_together() {
    let (server, other) = (Server::start(), Server::start());
    let pids = [&server, &other].map(|server| server.child.id());
    let flags = pids.map(|pid| format!("--server-pid={pid}"));
    let report = good(
        "by-pid",
        &server.url("/1k"),
        &[
            &flags[0],
            &flags[1],
            "--duration=600",
            "--max-requests-per-thread=2000",
        ],
    );
    assert_eq!(report["server"]["pids"], serde_json::json!(pids));
    assert!(report["server"]["cpu_us_per_request"].as_f64().unwrap() > 0.0);

    // After one process has ended, the CPU time of the others is not the cost of the requests.
    let folder = Folder::new("one-ends");
    let file = folder.file("report.json");
    let mut command = weir();
    command.args([
        "h3",
        "bench",
        &server.url("/1k"),
        "--insecure",
        "--duration=3600",
    ]);
    command.args(&flags).arg("--json").arg(&file);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut load = command.spawn().unwrap();
    let mut lines = BufReader::new(load.stderr.take().unwrap());
    // On a busy machine, the first seconds may pass without an answer.
    let mut line = String::new();
    while !line.contains(" requests") || line.contains(" 0 requests") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it has ended");
    }
    other.terminate();
    interrupt(&load);
    assert_eq!(load.wait().unwrap().code(), Some(0));
    let report = json(&file);
    let died = format!(
        "Of the server's 2 processes [{}] ended during the run",
        pids[1]
    );
    assert_eq!(report["server"]["died"], died);
    assert_eq!(report["server"]["cpu_us_per_request"], Value::Null);
    assert!(report["server"]["cpu_seconds"].as_f64().unwrap() > 0.0);

    let output = bench(&server.url("/1k"), &[&flags[0], &flags[1]]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!(
        "--server-pid: there is no process {} on this machine",
        pids[1]
    );
    assert!(text(&output.stderr).contains(&expected));
}

#[test]
fn an_interrupt_ends_a_run_with_its_report() {
    let (server, folder) = (Server::start(), Folder::new("interrupt"));
    let file = folder.file("report.json");
    let mut command = weir();
    command.args([
        "h3",
        "bench",
        &server.url("/1k"),
        "--insecure",
        "--duration=3600",
        "--json",
    ]);
    command
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut load = command.spawn().unwrap();
    let mut lines = BufReader::new(load.stderr.take().unwrap()).lines();
    let has_sent = |line: &String| line.contains(" requests (") && !line.contains("  0 requests (");
    let progress = lines.by_ref().map_while(Result::ok).find(has_sent);
    assert!(
        progress.is_some(),
        "it says how many requests were answered"
    );
    interrupt(&load);
    assert_eq!(load.wait().unwrap().code(), Some(0));
    let report = json(&file);
    assert!(report["requests"]["successes"].as_u64().unwrap() > 0);
    assert!(report["run"]["elapsed_ms"].as_f64().unwrap() < 3_000_000.0);
}

#[test]
fn files_are_sent_from_memory_and_sizes_made_on_demand() {
    let folder = Folder::new("memory");
    fs::write(folder.file("page"), [7; 777]).unwrap();
    let server = Server::with(&["--root", folder.path()]);
    fs::remove_file(folder.file("page")).unwrap();
    for (path, bytes) in [
        ("page", 777),
        ("1k", 1 << 10),
        ("5k", 5 << 10),
        ("15k", 15 << 10),
        ("50k", 50 << 10),
        ("2m", 2 << 20),
    ] {
        let expect = format!("--expect-length={bytes}");
        let arguments = ["--max-requests-per-thread=12", "--duration=60", &expect];
        let report = good(path, &server.url(&format!("/{path}")), &arguments);
        assert_eq!(report["requests"]["successes"], 12, "{path}");
    }
}

/// Forwards packets between one client's socket and a server, and records the longest packet of each direction.
struct Tap {
    address: SocketAddr,
    longest: Arc<[AtomicUsize; 2]>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tap {
    fn before(server: &Server) -> Self {
        let inner = UdpSocket::bind("127.0.0.1:0").unwrap();
        inner
            .connect(format!("127.0.0.1:{}", server.port()))
            .unwrap();
        let outer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = outer.local_addr().unwrap();
        for socket in [&inner, &outer] {
            socket
                .set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
        }
        let (longest, is_over) = (
            Arc::<[AtomicUsize; 2]>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (noted, asked) = (Arc::clone(&longest), Arc::clone(&is_over));
        #[expect(
            clippy::disallowed_methods,
            reason = "a wire of the program under test"
        )]
        let thread = std::thread::spawn(move || {
            let (mut client, mut packet) = (None, vec![0; 65536]);
            while !asked.load(Ordering::Relaxed) {
                while let Ok((length, from)) = outer.recv_from(&mut packet) {
                    client = Some(from);
                    noted[0].fetch_max(length, Ordering::Relaxed);
                    drop(inner.send(&packet[..length]));
                }
                while let (Some(client), Ok(length)) = (client, inner.recv(&mut packet)) {
                    noted[1].fetch_max(length, Ordering::Relaxed);
                    drop(outer.send_to(&packet[..length], client));
                }
            }
        });
        Self {
            address,
            longest,
            is_over,
            thread: Some(thread),
        }
    }

    /// The longest packet of the client, and that of the server.
    fn longest(&self) -> [usize; 2] {
        [0, 1].map(|side: usize| self.longest[side].load(Ordering::Relaxed))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[test]
fn packets_are_as_long_as_both_sides_allow() {
    // This request fills a packet.
    let path = format!("/50k?{}", "x".repeat(3000));
    for (serve, send, receive, expected) in [
        (1350, 1350, 1350, [1350, 1350]),
        (1452, 1300, 1452, [1300, 1452]),
        (1452, 1200, 1250, [1200, 1250]),
        (1300, 1350, 1452, [1350, 1300]),
    ] {
        let server = Server::with(&[&format!("--max-udp-payload-size={serve}")]);
        let tap = Tap::before(&server);
        let sizes = [
            format!("--send-udp-payload-size={send}"),
            format!("--recv-udp-payload-size={receive}"),
            format!("--connect={}", tap.address),
        ];
        let mut arguments = vec!["--sockets=1", "--max-concurrent-conns=1", "--duration=60"];
        arguments.push("--max-requests-per-thread=4");
        arguments.extend(sizes.iter().map(String::as_str));
        let report = good(
            &format!("size-{send}-{receive}"),
            &server.url(&path),
            &arguments,
        );
        assert_eq!(tap.longest(), expected, "{serve} {send} {receive}");
        assert_eq!(report["run"]["send_udp_payload_size"], send);
        assert_eq!(report["run"]["recv_udp_payload_size"], receive);
    }
}

#[test]
fn a_comparison_says_what_carried_the_packets() {
    let folder = Folder::new("namespace");
    let described = "scenarios = [\"1k\", \"1k-short\"]\nrounds = 2\nseconds = SECONDS\nwarm_up_seconds = 0\n\
        [[server]]\nname = \"ours\"\nready_seconds = 60\nversion = [\"{weir}\", \"--version\"]\n\
        start = [\"{weir}\", \"h3\", \"serve\", \"--listen\", \"127.0.0.1:{port}\", \"--cert\", \"{cert}\", \"--key\", \"{key}\", \"--root\", \"{root}\"]\n";
    let result = folder.file("a.json");
    succeed(0.5, |seconds| {
        let described = described.replace("SECONDS", &seconds.to_string());
        fs::write(folder.file("servers.toml"), described).unwrap();
        let mut command = weir();
        command
            .args(["h3", "compare"])
            .arg(folder.file("servers.toml"));
        command.arg("--json").arg(&result).output().unwrap()
    });
    let comparison = json(&result);
    let setting = comparison["setting"].to_string();
    // Without the rights for a namespace, the output says so.
    let is_inside = setting.contains("A network namespace of its own with an MTU of 1500 bytes.");
    let is_told = setting.contains("No network namespace could be made (");
    assert!(is_inside != is_told, "{setting}");
    for scenario in comparison["scenarios"].as_array().unwrap() {
        let entry = &scenario["standings"][0]["entry"];
        assert_eq!(entry["runs"].as_array().unwrap().len(), 2, "{entry}");
    }
}

#[test]
fn an_interrupt_ends_a_comparison_and_its_server() {
    let folder = Folder::new("broken-off");
    let pid = folder.file("pid");
    let described = format!(
        "scenarios = [\"1k\"]\nrounds = 1\nseconds = 300\n[[server]]\nname = \"ours\"\nready_seconds = 60\n\
         start = [\"sh\", \"-c\", \"echo $$ > {}; exec \\\"$@\\\"\", \"sh\", \"{{weir}}\", \"h3\", \"serve\", \"--listen\", \
         \"127.0.0.1:{{port}}\", \"--cert\", \"{{cert}}\", \"--key\", \"{{key}}\", \"--root\", \"{{root}}\"]\n",
        pid.display()
    );
    fs::write(folder.file("servers.toml"), described).unwrap();
    let result = folder.file("a.json");
    let mut command = weir();
    command.args(["h3", "compare", "--no-namespace", "--json"]);
    command.arg(&result).arg(folder.file("servers.toml"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut comparison = command.spawn().unwrap();
    let started = wait_for(|| {
        let text = fs::read_to_string(&pid).ok()?;
        text.trim().parse::<u32>().ok()
    });
    let server = format!("/proc/{}", started.expect("the server was started"));
    interrupt(&comparison);
    let status = comparison.wait().unwrap();
    assert_ne!(status.code(), Some(0), "not all runs were made");
    assert!(!Path::new(&server).exists(), "the server has ended as well");
}

#[test]
fn a_server_takes_as_many_connections_as_it_may_for_as_long_as_they_are_used() {
    let folder = Folder::new("bounds");
    let file = folder.file("report.json");
    let run = |server: &Server, seconds: f64, arguments: &[&str]| {
        succeed(seconds, |seconds| {
            let duration = format!("--duration={seconds}");
            let mut all = vec!["--json", file.to_str().unwrap(), &duration];
            all.extend(arguments);
            bench(&server.url("/1k"), &all)
        });
        json(&file)
    };
    let server = Server::with(&["--connections-max=1"]);
    let report = run(&server, 1.0, &["--max-concurrent-conns=2"]);
    let connections = &report["connections"];
    assert_eq!(connections["handshakes"], 1, "{report}");
    assert_eq!(connections["refusals"][0]["kind"], "refused", "{report}");
    assert_eq!(report["requests"]["failed"], 0, "{report}");

    // Requests with pauses, on connections with an idle timeout of 0.2 s. It is longer where answers are late: three probe timeouts.
    let server = Server::with(&["--idle-timeout=200ms"]);
    let reconnects = [(1.0, 4.0), (0.1, 25.0)]
        .into_iter()
        .any(|(rate, seconds)| {
            let rate = format!("--rate={rate}");
            let report = run(&server, seconds, &[&rate, "--max-concurrent-conns=1"]);
            report["connections"]["handshakes"].as_u64() >= Some(2)
        });
    assert!(reconnects, "an unused connection stays");
}
