use super::*;

#[derive(Debug, Default, PartialEq)]
struct Sample {
    name: String,
    inner: Inner,
}

#[derive(Debug, Default, PartialEq)]
struct Inner {
    wait: Duration,
    queue_bytes_max: u64,
    count: Option<usize>,
    words: Vec<String>,
    on: bool,
}

fn table() -> Vec<Setting<Sample>> {
    vec![
        setting!(name, "A name."),
        setting!(inner.wait in 1_000..=60_000_000, "How long."),
        setting!(inner.queue_bytes_max in 1..=1 << 40, "How much."),
        setting!(inner.count in 1..=10, "How many."),
        setting!(inner.words, "Words."),
        setting!(inner.on, "Whether."),
    ]
}

fn read(text: &str) -> Result<(Sample, Places), Vec<Problem>> {
    let (mut sample, mut places) = (Sample::default(), Places::new());
    let mut problems = Vec::new();
    let layer = parse_file("a.toml", text).map_err(|problem| vec![problem])?;
    apply(&table(), &mut sample, &mut places, layer, &mut problems);
    if problems.is_empty() {
        Ok((sample, places))
    } else {
        Err(problems)
    }
}

#[test]
fn what_is_printed_can_be_read_again() {
    let text = "name = \"a \\\" b\"\n[inner]\nwait = \"1m\"\nqueue_bytes_max = \"3MiB\"\nwords = [\"x\", \"y\"]\non = true\n";
    let (sample, _) = read(text).unwrap();
    assert_eq!(sample.inner.wait, Duration::from_mins(1));
    assert_eq!(sample.inner.queue_bytes_max, 3 << 20);
    assert_eq!(sample.inner.count, None);
    let printed = print(&table(), &sample);
    assert!(printed.contains("queue_bytes_max = \"3MiB\""), "{printed}");
    assert!(printed.contains("# count is not set"), "{printed}");
    assert_eq!(read(&printed).unwrap().0, sample, "{printed}");
}

#[test]
fn every_problem_has_its_line_and_says_what_was_expected() {
    let text = "nam = 1\nname = 2\n\n[inner]\nwait = \"2m\"\nqueue_bytes_max = 0\ncount = \"3\"\nwords = [1]\non = \"true\"\n[other]\nx = 1\n";
    assert_eq!(
        read(text).unwrap_err(),
        [
            "a.toml:1: unknown key `nam`; did you mean `name`?",
            "a.toml:2: name: expected a string, not 2",
            "a.toml:5: inner.wait: expected a time such as \"30s\" or \"250ms\", from 1ms to 1m, not `2m`",
            "a.toml:6: inner.queue_bytes_max: expected a number of bytes such as \"4MiB\", from 1 to 1024GiB, not 0",
            "a.toml:7: inner.count: expected a whole number from 1 to 10, not `3`",
            "a.toml:8: inner.words: expected a string, not 1",
            "a.toml:9: inner.on: expected true or false, not `true`",
            "a.toml:11: unknown section of `other.x`; see `weir relay --print-config`",
        ]
    );
    for (text, expected) in [
        ("x = 1", "a.toml:1: unknown key `x`; expected one of: name"),
        ("name = \"a\"\nname = \"b\"\n", "a.toml:2: duplicate key"),
        ("name = a", "a.toml:1: "),
        (
            "[inner]\nwait = 1.5",
            "a.toml:2: inner.wait: expected a time",
        ),
    ] {
        let problems = read(text).unwrap_err();
        assert!(problems[0].starts_with(expected), "{problems:?}");
    }
}

#[test]
fn later_layers_win_and_leave_their_place() {
    let (mut sample, mut places) = (Sample::default(), Places::new());
    let mut problems = Vec::new();
    let environment = |key: &str, text: &str| {
        let place = Place::Environment(variable("W_", key));
        (key.to_owned(), Raw::Text(text.to_owned()), place)
    };
    let file = parse_file("a.toml", "name = \"file\"\ninner.wait = \"2s\"\n").unwrap();
    let layers = [
        file,
        vec![
            environment("name", "environment"),
            environment("inner.words", "a, b,"),
            environment("inner.queue_bytes_max", "64KiB"),
            environment("inner.on", "yes"),
        ],
    ];
    for layer in layers {
        apply(&table(), &mut sample, &mut places, layer, &mut problems);
    }
    assert_eq!(sample.name, "environment");
    assert_eq!(sample.inner.wait, Duration::from_secs(2));
    assert_eq!(sample.inner.words, ["a", "b"]);
    assert_eq!(sample.inner.queue_bytes_max, 64 << 10);
    assert_eq!(places["name"].to_string(), "W_NAME");
    assert_eq!(places["inner.wait"].to_string(), "a.toml:2");
    assert_eq!(
        problems,
        ["W_INNER_ON: inner.on: expected true or false, not `yes`"]
    );
}

#[test]
fn secrets_of_an_address_are_not_shown() {
    for (url, shown) in [
        ("https://a/keys", "https://a/keys"),
        (
            "https://user:word@a:1/keys?token=x#y",
            "https://redacted@a:1/keys?redacted",
        ),
        ("https://a?token=x", "https://a?redacted"),
        ("user:word@a", "redacted@a"),
    ] {
        assert_eq!(SecretUrl(url.to_owned()).to_string(), shown);
    }
}

#[test]
fn congestion_is_controlled_by_name() {
    let shape = Shape {
        is_bytes: false,
        minimum: 0,
        maximum: 0,
    };
    for text in ["cubic", "delay 25ms", "delay 1s500ms", "delay 10s"] {
        let congestion = Congestion::read(&Raw::String(text.to_owned()), shape).unwrap();
        assert_eq!(congestion.show(shape), Some(text.into()));
    }
    let congestion = Congestion::read(&Raw::Text("delay".to_owned()), shape).unwrap();
    assert_eq!(congestion, Congestion::LOW_LATENCY);
    let long = ["delay 10s1ns", "delay 584000000000y"];
    for text in ["reno", "delay 0s", "delay soon", "cubic 1s", ""]
        .into_iter()
        .chain(long)
    {
        let refused = Congestion::read(&Raw::Text(text.to_owned()), shape);
        assert!(
            refused.unwrap_err().starts_with("expected \"cubic\""),
            "{text}"
        );
    }
}

#[test]
fn a_list_in_the_form_of_a_file_is_no_item() {
    let shape = Shape {
        is_bytes: false,
        minimum: 0,
        maximum: u64::MAX,
    };
    let text = |text: &str| Vec::<String>::read(&Raw::Text(text.to_owned()), shape);
    assert_eq!(text("a, b").unwrap(), ["a", "b"]);
    let problem = text("[\"a\"]").unwrap_err();
    assert!(problem.contains("with commas between"), "{problem}");
}
