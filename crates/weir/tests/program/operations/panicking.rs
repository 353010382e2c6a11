//! What becomes of a relay's process if one of its event loops panics.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::{SocketAddr, UdpSocket},
    process::Command,
};

use serde_json::Value;

use crate::process::{Folder, start_with, wait_for};

/// A library whose monotonic clock fails in one thread from when a file exists: the standard library panics at that. The
/// program itself has no way to make it panic.
const FAILING_CLOCK: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    const char *thread = getenv("FAILING_THREAD"), *file = getenv("FAILING_FILE");
    char name[16] = "";
    if (clock == CLOCK_MONOTONIC && thread && file) {
        prctl(PR_GET_NAME, name);
        if (!strcmp(name, thread) && !access(file, F_OK)) {
            errno = EINVAL;
            return -1;
        }
    }
    return syscall(SYS_clock_gettime, clock, time);
}
"#;

/// Builds the library with the C compiler that builds weir, too. Returns its path.
fn failing_clock(folder: &Folder) -> String {
    let source = folder.write("clock.c", FAILING_CLOCK);
    let library = folder.file("clock.so");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-D_GNU_SOURCE", "-shared", "-fPIC", "-o", &library, &source])
        .status();
    assert!(built.unwrap().success());
    library
}

/// Runs a relay of two threads until the thread of this name panics. Returns its exit code and standard error.
fn run_with_panic_in(thread: &str) -> (Option<i32>, String) {
    let folder = Folder::new("panicking");
    let (library, file) = (failing_clock(&folder), folder.file("now"));
    let variables = [
        ("LD_PRELOAD", library.as_str()),
        ("FAILING_THREAD", thread),
        ("FAILING_FILE", file.as_str()),
    ];
    let arguments = ["relay", "--listen", "127.0.0.1:0", "--threads", "2"];
    let mut child = start_with(&arguments, &variables);
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let relay: SocketAddr = ready["listening"].as_str().unwrap().parse().unwrap();

    folder.write("now", "");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ended = wait_for(|| {
        // Packets of unknown connections, for each of the threads, whose loops look at the clock then.
        for connection in 0..4 {
            drop(socket.send_to(&[0x40, connection, 0, 0, 0, 0, 0, 0, 0], relay));
        }
        child.try_wait().unwrap()
    });
    drop(child.kill());
    let mut errors = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut errors).unwrap();
    let status = ended.unwrap_or_else(|| panic!("it does not end: {errors}"));
    (status.code(), errors)
}

#[test]
fn a_panic_of_an_event_loop_ends_the_relay_with_an_error_that_names_it() {
    let (code, errors) = run_with_panic_in("relay-1");
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("thread 'relay-1'"), "{errors}");
    assert!(
        errors.contains("weir: a thread of the relay panicked"),
        "{errors}"
    );
}

#[test]
fn a_panic_of_the_first_event_loop_ends_the_relay_too() {
    let (code, errors) = run_with_panic_in("weir");
    // The code of a Rust program that panics.
    assert_eq!(code, Some(101), "{errors}");
    assert!(errors.contains("thread 'main'"), "{errors}");
    assert!(errors.contains("panicked at"), "{errors}");
}

/// Non-zero exit codes, signals and a watchdog without a sign of life are failures for systemd.
#[test]
fn systemd_restarts_a_relay_that_failed_however_often() {
    let unit = include_str!("../../../../../packaging/weir-relay.service");
    let values = |key: &str| -> Vec<&str> {
        let lines = unit.lines();
        lines
            .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .collect()
    };
    assert_eq!(values("Restart"), ["on-failure"]);
    assert_eq!(values("RestartSec"), ["1"]);
    assert_eq!(values("StartLimitIntervalSec"), ["0"]);
    assert_eq!(values("Type"), ["notify"]);
    assert_eq!(values("WatchdogSec"), ["30"]);
    for exception in [
        "SuccessExitStatus",
        "RestartPreventExitStatus",
        "StartLimitBurst",
    ] {
        assert!(values(exception).is_empty(), "{exception}");
    }
}
