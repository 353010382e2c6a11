use super::*;

const LIMITS: HttpLimits = HttpLimits {
    connections_max: 16,
    connections_per_address_max: 2,
    header_bytes_max: 256,
    // Only a test that hangs takes so long.
    timeout: Duration::from_mins(5),
};

fn start() -> SocketAddr {
    start_with(LIMITS)
}

fn start_with(limits: HttpLimits) -> SocketAddr {
    let pages = |path: &str| match path {
        "/here" => Page::text(200, "here"),
        _ => Page::text(404, "there is no such page"),
    };
    let hosts = vec!["metrics.example".to_owned()];
    serve(
        "127.0.0.1:0".parse().unwrap(),
        limits,
        hosts,
        Arc::new(pages),
    )
    .unwrap()
}

fn send(address: SocketAddr, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    stream
}

fn receive(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.set_read_timeout(Some(LIMITS.timeout)).unwrap();
    drop(stream.read_to_string(&mut text));
    text
}

#[track_caller]
fn assert_answer(address: SocketAddr, request: &[u8], status: &str) -> String {
    let text = receive(send(address, request));
    assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    text
}

#[test]
fn pages_are_served_and_nothing_else_is() {
    let address = start();
    let text = assert_answer(
        address,
        b"GET /here?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "200 OK\r\n",
    );
    assert!(
        text.ends_with("\r\n\r\nhere\n") && text.contains("Content-Length: 5\r\n"),
        "{text}"
    );
    let text = assert_answer(address, b"HEAD /here HTTP/1.1\r\n\r\n", "200 OK\r\n");
    assert!(text.ends_with("\r\n\r\n"), "{text}");
    assert_answer(address, b"GET /there HTTP/1.1\r\n\r\n", "404 ");
    assert_answer(address, b"POST /here HTTP/1.1\r\n\r\nbody", "405 ");
    for nonsense in [
        &b"\r\n\r\n"[..],
        b"GET /here\r\n\r\n",
        b"\xff\xff\r\n\r\n",
        b"GET  /here HTTP/1.1\r\n\r\n",
        b"GET /here HTTP/2.0\r\n\r\n",
    ] {
        assert_answer(address, nonsense, "400 ");
    }
}

/// A page of somebody else, whose name resolves to this address, must not read what the listener serves.
#[test]
fn requests_for_another_server_are_refused() {
    let address = start();
    for (host, status) in [
        ("127.0.0.1", "200 "),
        ("127.0.0.1:9090", "200 "),
        ("[::1]:9090", "200 "),
        ("LocalHost:1", "200 "),
        ("metrics.example:9090", "200 "),
        ("Metrics.Example", "200 "),
        ("rebound.example:9090", "421 "),
        ("localhost.example", "421 "),
        ("127.0.0.1.example", "421 "),
        ("", "421 "),
    ] {
        let request = format!("GET /here HTTP/1.1\r\nhost: {host}\r\n\r\n");
        assert_answer(address, request.as_bytes(), status);
    }
    let two = b"GET /here HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n\r\n";
    assert_answer(address, two, "421 ");
}

#[test]
fn pages_load_only_their_own_files_and_stand_in_no_frame() {
    let text = assert_answer(start(), b"GET /here HTTP/1.1\r\n\r\n", "200 ");
    let policy = "Content-Security-Policy: default-src 'none'; script-src 'self';";
    for part in [
        policy,
        "connect-src 'self' https:;",
        "frame-ancestors 'none'",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_request_at_the_limit_is_served_and_one_past_it_is_not() {
    let address = start();
    let request = |length: usize| {
        let frame = "GET /here HTTP/1.1\r\nA: \r\n\r\n";
        let filling = "a".repeat(length - frame.len());
        frame.replace("A: ", &format!("A: {filling}")).into_bytes()
    };
    assert_answer(address, &request(LIMITS.header_bytes_max), "200 ");
    assert_answer(address, &request(LIMITS.header_bytes_max + 1), "431 ");
    assert_answer(address, &vec![b'a'; 5000], "431 ");
}

#[test]
fn slow_clients_take_no_more_than_their_places() {
    let address = start_with(HttpLimits {
        connections_max: 2,
        ..LIMITS
    });
    let slow: Vec<TcpStream> = (0..2).map(|_| send(address, b"GET /here HT")).collect();
    // Both are accepted before the next: the listener takes them in order.
    let text = assert_answer(address, b"GET /here HTTP/1.1\r\n\r\n", "503 ");
    assert!(text.ends_with("too many connections\n"), "{text}");
    // When they have gone, their places are free a moment later.
    drop(slow);
    wait_until_served(address);
}

#[test]
fn an_address_takes_no_more_than_its_places() {
    let places = Places::default();
    let take = |client: &str| places.take(client.parse().unwrap(), LIMITS);
    let mut taken = vec![take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap()];
    assert!(take("192.0.2.1").is_none());
    // Others have theirs, and this machine has all.
    taken.push(take("192.0.2.2").unwrap());
    taken.extend((3..LIMITS.connections_max).map(|_| take("127.0.0.1").unwrap()));
    assert!(take("192.0.2.2").is_none());
    taken.remove(0);
    assert!(take("192.0.2.2").is_some(), "it took no place before");
    assert!(take("192.0.2.1").is_some());
}

/// A request that arrives in pieces of this many bytes.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(self.0.len());
        self.0.read(&mut buffer[..length])
    }
}

#[test]
fn a_request_ends_at_its_empty_line_however_it_is_cut() {
    let request = b"GET /here HTTP/1.1\r\nA: b\r\n\r\n";
    for length in 1..=request.len() {
        let head = read_head(&mut Pieces(request, length), 256).unwrap();
        assert_eq!(head.as_deref(), Some(&request[..]));
        let cut = read_head(&mut Pieces(&request[1..27], length), 256).unwrap();
        assert_eq!(cut, None);
        let long = read_head(&mut Pieces(request, length), 10)
            .unwrap()
            .unwrap();
        assert!(long.len() > 10 && long.len() <= 10 + length);
    }
}

#[test]
fn slow_clients_are_cut_off_at_their_deadline() {
    let address = start_with(HttpLimits {
        connections_max: 2,
        timeout: Duration::from_millis(300),
        ..LIMITS
    });
    let slow: Vec<TcpStream> = (0..2).map(|_| send(address, b"GET /here HT")).collect();
    for stream in slow {
        assert_eq!(receive(stream), "", "cut off at the deadline");
    }
    wait_until_served(address);
}

/// Asks again and again, until there is a place.
#[track_caller]
fn wait_until_served(address: SocketAddr) {
    let is_served = |_| receive(send(address, b"GET /here HTTP/1.1\r\n\r\n")).contains(" 200 ");
    assert!((0..10_000).any(is_served));
}
