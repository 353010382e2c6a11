//! The examples in the help of each command.

use clap::Command;

/// Adds the examples of [`EXAMPLES`] to the help of `program` and of its subcommands, before the usage.
pub(super) fn add(program: Command) -> Command {
    let path = program.get_name().to_owned();
    add_below(program, &path)
}

fn add_below(command: Command, path: &str) -> Command {
    let command = match EXAMPLES.iter().find(|(name, _)| *name == path) {
        Some((_, examples)) => command.help_template(template(examples)),
        None => command,
    };
    command.mut_subcommands(|subcommand| {
        let path = format!("{path} {}", subcommand.get_name());
        add_below(subcommand, &path)
    })
}

/// Returns clap's own template with a block of examples.
fn template(examples: &[&str]) -> String {
    let lines = examples.join("\n  ");
    format!(
        "{{before-help}}{{about-with-newline}}\nExamples:\n  {lines}\n\n{{usage-heading}} {{usage}}\n\n{{all-args}}{{after-help}}"
    )
}

/// What `weir` without arguments prints: one command for each job.
pub(super) const FIRST_STEPS: &str = "\
weir measures Media over QUIC relays and HTTP/3 servers, and streams live video. Try one of:

  weir bench profiles/audio-short.ini
      measure weir's own relay with 200 subscribers, in about 8 s; in weir's repository, which has the profiles
  weir h3 bench https://localhost:4433/15k --insecure
      measure an HTTP/3 server; `weir h3 serve` starts one at that address
  weir live watch
      show a live test picture in a browser; needs ffmpeg

`weir --help` lists all commands. `weir COMMAND --help` shows examples and every flag.
";

/// Examples of each command, by the words that call the command. Profiles are those of the repository.
pub(crate) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "weir",
        &[
            "weir bench profiles/audio-short.ini",
            "weir relay --listen 127.0.0.1:4443",
            "weir h3 serve --listen 127.0.0.1:4433",
            "weir live watch",
        ],
    ),
    (
        "weir agent",
        &[
            "weir agent --fleet nats://nats.example.net --fleet-key fleet.key --name host-a",
            "weir agent --fleet nats://nats.example.net --fleet-key fleet.key --name relay-host --watch 4711",
        ],
    ),
    (
        "weir bench",
        &[
            "weir bench profiles/audio-short.ini --html report.html",
            "weir bench profiles/audio.ini --relay moqt://127.0.0.1:4443 --insecure --subscribers 100",
        ],
    ),
    (
        "weir bench find-max",
        &[
            "weir bench find-max profiles/audio.ini --slo 'loss=0,p99<100ms,cpu<70%' --json search.json",
            "weir bench find-max profiles/audio-video.ini --by bitrate --subscribers 50 --max-time 300",
        ],
    ),
    (
        "weir bench compare",
        &[
            "weir bench compare profiles/relays.toml --html relays.html",
            "weir bench compare profiles/relays.toml --only weir --find-max",
        ],
    ),
    (
        "weir bench report",
        &[
            "weir bench report run.weir-archive --html report.html",
            "weir bench report run.weir-archive --from 5 --to 10 --csv subscriptions.csv",
        ],
    ),
    (
        "weir h3",
        &[
            "weir h3 serve --listen 127.0.0.1:4433",
            "weir h3 bench https://localhost:4433/15k --insecure",
        ],
    ),
    (
        "weir h3 bench",
        &[
            "weir h3 bench https://localhost:4433/15k --insecure --server-process nginx",
            "weir h3 bench https://localhost:4433/1k --insecure --rate 2000 --duration 10s --html report.html",
        ],
    ),
    (
        "weir h3 compare",
        &[
            "weir h3 compare profiles/contenders.toml --html servers.html",
            "weir h3 compare profiles/contenders.toml --only weir --scenario 15k --rounds 1",
        ],
    ),
    (
        "weir h3 serve",
        &[
            "weir h3 serve --listen 127.0.0.1:4433",
            "weir h3 serve --listen 0.0.0.0:443 --root site --cert cert.pem --key key.pem",
        ],
    ),
    (
        "weir link",
        &[
            "weir link --listen 127.0.0.1:4444 --to 127.0.0.1:4443 --rate 500k",
            "weir link --listen 127.0.0.1:4444 --to 127.0.0.1:4443 --profile INTRA_CASCADE --delay 50ms --loss 0.01",
        ],
    ),
    (
        "weir live",
        &[
            "weir live watch",
            "weir live lab --profiles 500k --strategies skip,weir",
        ],
    ),
    (
        "weir live publish",
        &[
            "ffmpeg -re -f lavfi -i testsrc2=size=1280x720:rate=24 -pix_fmt yuv420p -c:v libx264 -g 24 \\\n    \
             -f mp4 -movflags cmaf+frag_every_frame+empty_moov pipe:1 | weir live publish --listen 127.0.0.1:4443",
            "weir live publish moqt://127.0.0.1:4443 --insecure --input clip.mp4 --realtime",
        ],
    ),
    (
        "weir live play",
        &[
            "weir live play moqt://127.0.0.1:4443 --insecure",
            "weir live play moqt://127.0.0.1:4443 --insecure --namespace live/alice --time 10s --json play.json",
        ],
    ),
    (
        "weir live watch",
        &[
            "weir live watch",
            "weir live watch --input clip.mp4 --page 127.0.0.1:8080",
        ],
    ),
    (
        "weir live lab",
        &[
            "weir live lab --profiles 500k --strategies skip,weir --html lab.html",
            "weir live lab --seeds 10 --require",
        ],
    ),
    (
        "weir probe",
        &[
            "weir probe moqt://127.0.0.1:4443 --insecure --html probe.html",
            "weir probe https://127.0.0.1:4443 --insecure --only goaway. --messages 1000",
        ],
    ),
    (
        "weir probe compare",
        &[
            "weir probe compare ours.json other.json",
            "weir probe compare ours.json other.json --results docs/probe-results.md",
        ],
    ),
    (
        "weir relay",
        &[
            "weir relay --listen 127.0.0.1:4443 --admin 127.0.0.1:9443",
            "weir relay --config relay.toml --check",
        ],
    ),
    (
        "weir token",
        &[
            "weir token key issuer",
            "weir token sign --key issuer.pem --root live --put alice --get ''",
        ],
    ),
    (
        "weir token key",
        &["weir token key issuer", "weir token key /etc/weir/issuer"],
    ),
    (
        "weir token sign",
        &[
            "weir token sign --key issuer.pem --root live --put alice --get ''",
            "weir token sign --key issuer.pem --get live/alice --lasts 10days",
        ],
    ),
];
