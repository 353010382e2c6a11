//! Reads the relay's admin pages and metrics.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use crate::process::wait_for;

/// Returns the status and the body of a page.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Returns the value of a metric.
pub(crate) fn metric(address: SocketAddr, name: &str) -> Option<f64> {
    let (status, body) = get(address, "/metrics");
    assert_eq!(status, 200);
    let line = body
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

/// Waits until a metric has a value.
#[track_caller]
pub(crate) fn expect_metric(address: SocketAddr, name: &str, value: f64) {
    let matches = |found: &f64| (found - value).abs() < 1e-9;
    let found = wait_for(|| metric(address, name).filter(matches));
    assert!(
        found.is_some(),
        "{name} is {:?}, not {value}",
        metric(address, name)
    );
}

/// Waits until a metric is at least this large.
#[track_caller]
pub(crate) fn expect_at_least(address: SocketAddr, name: &str, least: f64) {
    let found = wait_for(|| metric(address, name).filter(|found| *found >= least));
    assert!(
        found.is_some(),
        "{name} is {:?}, not {least}",
        metric(address, name)
    );
}
