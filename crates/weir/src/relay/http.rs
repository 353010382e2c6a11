//! The HTTP listener for operators: GET and HEAD over HTTP/1.1, one request for each connection.
//!
//! The listener reads only the request line, and limits connections, bytes and time. Its clients are few and trusted. Of
//! their bytes, only the path is used, to choose a page.

use std::{
    borrow::Cow,
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use weir_net::clock;
use weir_quic::{Counted, Origin, OriginCounts};

/// Limits of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpLimits {
    /// Connections at once. Further ones get status 503.
    pub(crate) connections_max: usize,
    /// Connections at once from one address, except this machine's own. Further ones get status 503.
    pub(crate) connections_per_address_max: usize,
    /// Bytes of a request. A longer one gets status 431.
    pub(crate) header_bytes_max: usize,
    /// Time from accepting a connection to the end of its answer.
    pub(crate) timeout: Duration,
}

/// An answer: status, content type and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: Cow<'static, [u8]>,
    /// A port of this machine to which the page may post a report.
    pub(crate) report_port: Option<u16>,
}

impl Page {
    /// Returns a page of JSON.
    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self {
            status: 200,
            content_type: "application/json",
            body: Cow::Owned(format!("{value}\n").into_bytes()),
            report_port: None,
        }
    }

    /// Returns a page with one line of plain text.
    pub(crate) fn text(status: u16, line: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: Cow::Owned(format!("{line}\n").into_bytes()),
            report_port: None,
        }
    }
}

/// A function that returns the page of a path.
pub(crate) type Pages = dyn Fn(&str) -> Page + Send + Sync;

/// Binds to `address`, and serves `pages` on threads of its own until the process ends. Requests have to name an IP address,
/// `localhost` or one of `hosts` as their server: a page of somebody else whose name is made to resolve to this address
/// (DNS rebinding) gets nothing. Returns the bound address.
pub(crate) fn serve(
    address: SocketAddr,
    limits: HttpLimits,
    hosts: Vec<String>,
    pages: Arc<Pages>,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    // The event loops must not wait for the listener.
    std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || accept(&listener, limits, &hosts.into(), &pages))?;
    Ok(address)
}

fn accept(listener: &TcpListener, limits: HttpLimits, hosts: &Arc<[String]>, pages: &Arc<Pages>) {
    let places = Places::default();
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptor is free, or the client has left. The pause prevents a busy loop.
            std::thread::park_timeout(Duration::from_millis(50));
            continue;
        };
        let Ok(client) = stream.peer_addr() else {
            continue;
        };
        let Some(place) = places.take(client.ip(), limits) else {
            let mut stream = Deadline::new(stream, BUSY_TIMEOUT);
            drop(answer(
                &mut stream,
                &Page::text(503, "too many connections"),
                true,
            ));
            continue;
        };
        let (hosts, pages) = (Arc::clone(hosts), Arc::clone(pages));
        let started = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                // An error concerns only this client.
                drop(handle(stream, limits, &hosts, &*pages));
                drop(place);
            });
        drop(started);
    }
}

/// The connections at once, all together and by address.
#[derive(Default)]
struct Places {
    open: Arc<AtomicUsize>,
    counts: OriginCounts,
}

/// The place of a connection, taken until it is dropped.
#[derive(Debug)]
struct Place {
    open: Arc<AtomicUsize>,
    _counted: Counted,
}

impl Places {
    fn take(&self, client: IpAddr, limits: HttpLimits) -> Option<Place> {
        let max = limits.connections_per_address_max;
        let counted = self.counts.enter(Origin::of(client), max)?;
        if self.open.load(Ordering::Relaxed) >= limits.connections_max {
            return None;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(Place {
            open: Arc::clone(&self.open),
            _counted: counted,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn handle(
    stream: TcpStream,
    limits: HttpLimits,
    hosts: &[String],
    pages: &Pages,
) -> io::Result<()> {
    let mut stream = Deadline::new(stream, limits.timeout);
    let Some(head) = read_head(&mut stream, limits.header_bytes_max)? else {
        return Ok(());
    };
    let (page, with_body) = page(&head, limits, hosts, pages);
    answer(&mut stream, &page, with_body)
}

/// Reads a request up to its empty line, or until it is longer than `bytes_max`; `None` if it ends before.
fn read_head(stream: &mut impl Read, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    let mut searched = 0;
    while head.len() <= bytes_max && !head[searched..].windows(END.len()).any(|it| it == END) {
        // The empty line may begin in the bytes before the next.
        searched = head.len().saturating_sub(END.len() - 1);
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            length => head.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(Some(head))
}

/// Returns the page for a request, and whether the answer has a body.
fn page(head: &[u8], limits: HttpLimits, hosts: &[String], pages: &Pages) -> (Page, bool) {
    if head.len() > limits.header_bytes_max {
        return (
            Page::text(431, "the request is longer than admin.header_bytes_max"),
            true,
        );
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else {
        return (Page::text(400, "expected an HTTP/1.1 request"), true);
    };
    let mut words = line.split(' ');
    let words = [words.next(), words.next(), words.next(), words.next()];
    let [
        Some(method),
        Some(target),
        Some("HTTP/1.1" | "HTTP/1.0"),
        None,
    ] = words
    else {
        return (Page::text(400, "expected an HTTP/1.1 request"), true);
    };
    if method != "GET" && method != "HEAD" {
        return (Page::text(405, "expected GET or HEAD"), true);
    }
    if !names_this_server(head, hosts) {
        let line = "Host: expected an IP address, localhost, or a name that the settings list: `admin.hosts` of \
                    weir relay, --page-host of weir live watch";
        return (Page::text(421, line), true);
    }
    let path = target.split('?').next().unwrap_or_default();
    (pages(path), method == "GET")
}

/// Returns whether the `Host` of a request is one of this server. Clients that are not browsers may leave it out.
fn names_this_server(head: &[u8], hosts: &[String]) -> bool {
    let text = String::from_utf8_lossy(head);
    let fields = text.split("\r\n").filter_map(|line| line.split_once(':'));
    let mut named = fields
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
        .map(|(_, value)| value.trim());
    named.all(|host| {
        let without_port = host
            .rsplit_once(':')
            .filter(|(_, port)| !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()))
            .map_or(host, |(host, _)| host);
        let address = without_port.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok()
            || without_port.eq_ignore_ascii_case("localhost")
            || hosts
                .iter()
                .any(|name| without_port.eq_ignore_ascii_case(name))
    })
}

fn answer(stream: &mut Deadline, page: &Page, with_body: bool) -> io::Result<()> {
    let Page {
        status,
        content_type,
        body,
        report_port,
    } = page;
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    };
    let length = body.len();
    let policy = content_policy(*report_port);
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: {policy}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if with_body {
        stream.write_all(body)?;
    }
    stream.stream.shutdown(std::net::Shutdown::Write)?;
    // Closing a socket with unread bytes would cut the answer off.
    let mut rest = [0; 1024];
    for _ in 0..REST_READS_MAX {
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// A stream with one deadline for all reads and writes, however slow the peer is.
struct Deadline {
    stream: TcpStream,
    end: Instant,
}

impl Deadline {
    fn new(stream: TcpStream, timeout: Duration) -> Self {
        let end = clock::now() + timeout;
        Self { stream, end }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Deadline {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Deadline {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Returns what a page may load and do: its own scripts, styles and files, connections to relays, and a report to a port of
/// this machine. No other page may show it in a frame.
fn content_policy(report_port: Option<u16>) -> String {
    let report = report_port.map(|port| format!(" http://127.0.0.1:{port}"));
    let report = report.unwrap_or_default();
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self' blob: mediastream:; \
         connect-src 'self' https:{report}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// The end of a request's last line, and the empty line.
const END: &[u8] = b"\r\n\r\n";
/// Time for the answer to a client beyond the limit. Meanwhile the listener accepts no connection.
const BUSY_TIMEOUT: Duration = Duration::from_millis(20);
/// Most reads of bytes that a client sends after its request.
const REST_READS_MAX: usize = 8;

#[cfg(test)]
mod tests;
