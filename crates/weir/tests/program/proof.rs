//! Proofs that the load generator kept up, on real sockets, and the end of all processes that the program starts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use weir_net::terminate;

use crate::process::wait_for;

const PROFILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../profiles/audio-short.ini"
);

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("weir-proof-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a short benchmark with a few subscribers. Returns its report and its output.
fn bench(name: &str, arguments: &[&str]) -> (Value, Output) {
    let folder = folder(name);
    let json = folder.join("run.json");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", PROFILE, "--subscribers", "5", "--json"])
        .arg(&json)
        .args(arguments)
        .output()
        .unwrap();
    let text = fs::read_to_string(&json).unwrap();
    let report = serde_json::from_str(&text);
    let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    fs::remove_dir_all(&folder).unwrap();
    (report, output)
}

#[test]
fn a_generator_that_is_slow_on_purpose_is_named_as_the_limit() {
    let (report, output) = bench("waste", &["--waste-cpu", "100"]);
    assert_eq!(
        report["verdict"]["outcome"], "generator_limit",
        "{}",
        report["verdict"]
    );
    assert_eq!(report["generator"]["healthy"], false);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("no statement: the generator was the limit"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_run_is_calibrated_against_a_null_relay() {
    let (report, output) = bench("calibrate", &["--calibrate", "--slo", "loss=0,p99<30s"]);
    let calibration = &report["generator"]["calibration"];
    let rate = calibration["objects_per_second"].as_f64();
    // A null relay on a busy machine may deliver late, but loses nothing.
    assert!(
        !calibration["reasons"].to_string().contains("loss=0"),
        "{calibration}"
    );
    // Five subscribers with 50 objects per second each. Late objects count in a later second; the first and the last second do
    // not count.
    assert!(
        rate.is_some_and(|rate| (125.0..500.0).contains(&rate)),
        "{calibration}"
    );
    assert!(
        calibration["null_relay_cpu_us_per_object"].is_number(),
        "{calibration}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Against a null relay"), "{text}");
    let seconds = report["generator"]["per_second"].as_array().unwrap();
    assert!(
        seconds
            .iter()
            .any(|one| one["rss_bytes"].as_u64() > Some(1 << 20)),
        "{seconds:?}"
    );
}

#[test]
fn what_a_null_relay_cannot_show_is_not_calibrated() {
    let folder = folder("senseless");
    let file = folder.join("profile.ini");
    let plain = fs::read_to_string(PROFILE).unwrap();
    let section = plain.lines().find(|line| line.starts_with('[')).unwrap();
    let with = |key: &str| plain.replace(section, &format!("{section}\n{key}"));
    let stream = plain.replace("= datagram", "= stream");
    let fetch = stream.replace(section, &format!("{section}\npattern = fetch"));
    let said = |text: &str, command: &[&str], flags: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = weir.args(command).arg(&file).args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let publishes = format!("weir: --calibrate: {section}: mode = 1: a null relay would have");
    let error = said(&with("mode = 1"), &["bench"], &["--calibrate"]);
    assert!(error.starts_with(&publishes), "{error}");
    let relay = ["--relay", "moqt://127.0.0.1:4443"];
    let with_role = |flags: &[&'static str]| [&relay, flags].concat();
    let role = with_role(&["--calibrate", "--role", "publish"]);
    let error = said(&plain, &["bench"], &role);
    assert!(
        error.starts_with("weir: --calibrate: --role publish: a null relay would have"),
        "{error}"
    );
    let error = said(&fetch, &["bench"], &["--calibrate"]);
    let fetched = format!("{section}: pattern = fetch: a null relay has no cache");
    assert!(error.contains(&fetched), "{error}");
    let search = ["bench", "find-max"];
    let error = said(&fetch, &search, &[]);
    assert!(
        error.contains(&fetched) && error.contains("add --no-calibration"),
        "{error}"
    );
    // Searches and comparisons do not divide a run between processes.
    for (number, named) in [(1, "mode = 1"), (2, "mode = 2")] {
        let error = said(&with(named), &search, &[]);
        let problem = format!("weir: {section}: mode = {number}: a search or comparison needs");
        assert!(error.starts_with(&problem), "{error}");
    }
    let error = said(&plain, &search, &with_role(&["--role", "subscribe"]));
    assert!(
        error.starts_with("weir: --role subscribe: a search"),
        "{error}"
    );
    let relays = folder.join("relays.toml");
    let description = "profile = \"profile.ini\"\n[[relay]]\nname = \"one\"\nstart = [\"false\"]\n\
                       url = \"moqt://127.0.0.1:4443\"\n";
    fs::write(&relays, description).unwrap();
    let compare = |text: &str, flags: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let weir = weir.args(["bench", "compare"]).arg(&relays).args(flags);
        String::from_utf8(weir.output().unwrap().stderr).unwrap()
    };
    for flags in [&[][..], &["--find-max"]] {
        let error = compare(&with("mode = 2"), flags);
        assert!(
            error.contains(": mode = 2: a search or comparison"),
            "{error}"
        );
    }
    let error = compare(&fetch, &["--find-max"]);
    assert!(
        error.contains("--find-max: ") && error.contains(&fetched),
        "{error}"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_second_request_to_stop_ends_the_relay_too() {
    let folder = folder("stop");
    let (pid_file, asked) = (folder.join("pid"), folder.join("asked"));
    // A relay that records the request to end, and continues.
    let script = format!(
        "trap 'echo > {}' TERM INT; echo $$ > {}; while :; do sleep 0.1; done",
        asked.display(),
        pid_file.display()
    );
    let file = folder.join("relays.toml");
    let text = format!(
        "profile = {PROFILE:?}\nsubscribers = 2\n[[relay]]\nname = \"stubborn\"\nstart = [\"sh\", \"-c\", {script:?}]\n\
         url = \"moqt://127.0.0.1:9\"\nready_ms = 600000\n"
    );
    fs::write(&file, text).unwrap();
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "compare"])
        .arg(&file)
        .spawn()
        .unwrap();
    let relay = wait_for(|| {
        let text = fs::read_to_string(&pid_file).ok()?;
        text.trim().parse::<u32>().ok()
    });
    let relay = relay.expect("it starts the relay");
    let pid = i32::try_from(weir.id()).unwrap();
    terminate(pid);
    // The program has handled the first signal, and waits some seconds for the end of the relay. Before that, a second signal would
    // be merged with the first.
    let is_asked = wait_for(|| asked.exists().then_some(()));
    assert!(is_asked.is_some() && is_running(relay));
    terminate(pid);
    let status = wait_for(|| weir.try_wait().unwrap());
    assert_eq!(status.and_then(|status| status.code()), Some(128 + 15));
    assert!(wait_for(|| (!is_running(relay)).then_some(())).is_some());
    fs::remove_dir_all(&folder).unwrap();
}

/// Returns whether a process runs; a zombie does not.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|line| !line.contains(") Z "))
}
