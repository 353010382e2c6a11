//! The live view of a run on a real terminal: it fits, follows the terminal's size, and restores the terminal.

use std::{
    ffi::OsStr,
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    },
    process::{Child, Command, Stdio},
};

use rustix::{
    fs::OFlags,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, OptionalActions, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};

const AUDIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../profiles/audio-short.ini"
);

/// A service level that holds on every machine, however busy.
const ANY: &str = "loss<100%,p99<600s";

/// Returns whether the run has ended, and only the shell has written since. On a machine without time for the generator, the exit
/// code may be 1.
fn is_left(rest: &[String]) -> bool {
    rest == ["after 0", ""] || rest == ["after 1", ""]
}

#[test]
fn a_terminal_shows_a_view_that_fits_and_is_left_as_it_was() {
    for (columns, rows) in [(8, 3), (12, 30), (40, 50), (80, 4), (120, 50)] {
        let terminal = after_a_run(columns, rows);
        let screen = &terminal.screen;
        assert!(screen.frames >= 3, "{} frames", screen.frames);
        let text = screen.text();
        assert!(is_left(&text[1..]), "{columns} by {rows}: {text:?}");
        assert_eq!(text[0], "before", "{columns} by {rows}");
        assert!(
            !screen.has_wrapped,
            "a line was longer than {columns} columns"
        );
        assert!(screen.frame_lines_max < usize::from(rows), "{screen:?}");
    }
}

/// Runs a benchmark to its end. A kernel that groups processes by session can leave this session without time for seconds, if others
/// keep the core of the load busy: threads that may run for 14 s had not run once. Such a run is repeated.
fn after_a_run(columns: u16, rows: u16) -> Terminal {
    for _ in 0..RUNS_MAX {
        let mut terminal =
            Terminal::start(columns, rows, &["--subscribers", "2"], "2>&1 >/dev/null");
        terminal.read_to_the_end();
        let text = terminal.screen.text();
        if !text.iter().any(|line| line.contains("no answer within")) {
            return terminal;
        }
    }
    panic!("the load had no time in {RUNS_MAX} runs");
}

/// Has the kernel prefer the session of a shell, where it may.
const PREFERRED: &str = "{ echo -20 >/proc/self/autogroup; } 2>/dev/null";

/// Runs of which the last one has to have time.
const RUNS_MAX: usize = 5;

#[test]
fn a_view_follows_the_size_of_the_terminal() {
    let endless = ["--subscribers", "2", "--seconds", "3600"];
    let mut terminal = Terminal::start(100, 30, &endless, "2>&1 >/dev/null");
    terminal.read_frames(2);
    // Wider: the view is drawn over itself. Narrower: parts of wrapped lines may remain, and nothing else is erased.
    terminal.resize(120, 30);
    terminal.read_frames(2);
    assert_eq!(terminal.screen.lines_above_the_frame(), ["before"]);
    terminal.resize(60, 30);
    terminal.read_frames(1);
    // A frame in flight at that moment was drawn for the wider terminal.
    terminal.screen.has_wrapped = false;
    terminal.resize(60, 3);
    terminal.read_frames(1);
    terminal.type_in("\x03");
    terminal.read_to_the_end();
    let text = terminal.screen.text();
    assert_eq!(
        text.first().map(String::as_str),
        Some("before"),
        "{text:#?}"
    );
    assert!(is_left(&text[text.len() - 2..]), "{text:#?}");
    assert!(text.len() < 12, "{text:#?}");
    assert!(!terminal.screen.has_wrapped, "{text:#?}");
}

#[test]
fn ctrl_c_leaves_a_usable_terminal_and_a_partial_report() {
    let mut terminal = Terminal::start(100, 30, &["--subscribers", "2", "--seconds", "3600"], "");
    let as_it_was = terminal.attributes();
    terminal.read_until(|screen| screen.shown().any(|line| line.starts_with("sending")));
    terminal.type_in("\x03");
    terminal.read_to_the_end();
    let text = terminal.screen.text();
    assert_eq!(text[0], "before", "{text:#?}");
    // No part of the view, and the report of the measurements so far.
    assert!(
        text[1..].iter().all(|line| !line.starts_with("sending ")),
        "{text:#?}"
    );
    let has = |words: &str| text.iter().any(|line| line.contains(words));
    assert!(
        has("partial") && has("interrupted; until then"),
        "{text:#?}"
    );
    // The cursor is in the first column, and the terminal in its normal mode.
    assert_eq!(text[text.len() - 2..], ["after 1", ""], "{text:#?}");
    let attributes = terminal.attributes();
    assert_eq!(attributes.local_modes, as_it_was.local_modes);
    assert_eq!(attributes.output_modes, as_it_was.output_modes);
    assert_eq!(attributes.input_modes, as_it_was.input_modes);
}

/// A benchmark on its own terminal, between two lines that a shell writes.
struct Terminal {
    keyboard_and_screen: File,
    /// Kept open, so that the terminal outlives its programs.
    line: File,
    shell: Child,
    screen: Screen,
}

impl Terminal {
    fn start(columns: u16, rows: u16, arguments: &[&str], redirection: &str) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let line = File::options()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(OFlags::NOCTTY.bits()).unwrap())
            .open(OsStr::from_bytes(name.to_bytes()))
            .unwrap();
        set_size(&master, columns, rows);
        keep_what_is_written(&line);
        let program = env!("CARGO_BIN_EXE_weir");
        let arguments = arguments.join(" ");
        // The shell continues when its program is interrupted.
        let script = format!(
            "trap : INT; {PREFERRED}; echo before; {program} bench {AUDIO} --slo '{ANY}' {arguments} {redirection}; echo after $?"
        );
        let stdio = || Stdio::from(line.try_clone().unwrap());
        let shell = Command::new("setsid")
            .args(["--ctty", "--wait", "sh", "-c", &script])
            .env_remove("NO_COLOR")
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        Self {
            keyboard_and_screen: File::from(master),
            line,
            shell,
            screen: Screen::new(columns.into()),
        }
    }

    /// Resizes the window. Lines that are too long for the new width are wrapped, as in most terminals.
    fn resize(&mut self, columns: u16, rows: u16) {
        set_size(&self.keyboard_and_screen, columns, rows);
        self.screen.reflow(columns.into());
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard_and_screen.write_all(keys.as_bytes()).unwrap();
    }

    fn attributes(&self) -> Termios {
        tcgetattr(&self.line).unwrap()
    }

    /// Reads until this number of further frames is complete.
    fn read_frames(&mut self, more: usize) {
        let frames = self.screen.frames + more;
        self.read_until(|screen| screen.frames > frames);
    }

    fn read_until(&mut self, is_there: impl Fn(&Screen) -> bool) {
        while !is_there(&self.screen) {
            assert!(
                self.read(),
                "the program ended before: {:#?}",
                self.screen.text()
            );
        }
    }

    /// Reads until the last line of the shell.
    fn read_to_the_end(&mut self) {
        self.read_until(|screen| {
            let lines: Vec<&str> = screen.shown().collect();
            matches!(lines[..], [.., after, ""] if after.starts_with("after "))
        });
        self.shell.wait().unwrap();
    }

    /// Reads the available output. Returns false if the terminal is closed.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.keyboard_and_screen.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.screen.play(&bytes[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(_) => false,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.shell.kill());
        drop(self.shell.wait());
    }
}

fn set_size(terminal: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

/// Makes the terminal keep pending output when Ctrl-C is typed. Otherwise the kernel discards it, with a part of a view, and the
/// next view begins too high.
fn keep_what_is_written(terminal: impl AsFd) {
    let mut attributes = tcgetattr(&terminal).unwrap();
    attributes.local_modes |= LocalModes::NOFLSH;
    tcsetattr(&terminal, OptionalActions::Now, &attributes).unwrap();
}

/// A terminal with the features that a view needs: lines, a cursor, and colours, which are ignored. Other escape sequences, such
/// as for hiding the cursor, fail the test.
#[derive(Debug)]
struct Screen {
    columns: usize,
    lines: Vec<String>,
    row: usize,
    column: usize,
    has_wrapped: bool,
    /// How often a part was erased to be drawn again, and its first line.
    frames: usize,
    frame_from: usize,
    frame_lines: usize,
    frame_lines_max: usize,
    /// Bytes of an incomplete character or control sequence.
    rest: Vec<u8>,
}

impl Screen {
    fn new(columns: usize) -> Self {
        Self {
            columns,
            lines: vec![String::new()],
            row: 0,
            column: 0,
            has_wrapped: false,
            frames: 0,
            frame_from: 0,
            frame_lines: 0,
            frame_lines_max: 0,
            rest: Vec::new(),
        }
    }

    /// Returns the lines without trailing blanks.
    fn shown(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| line.trim_end())
    }

    fn text(&self) -> Vec<String> {
        self.shown().map(str::to_owned).collect()
    }

    fn lines_above_the_frame(&self) -> Vec<&str> {
        self.shown().take(self.frame_from).collect()
    }

    /// Processes output of the program.
    fn play(&mut self, written: &[u8]) {
        self.rest.extend_from_slice(written);
        let bytes = std::mem::take(&mut self.rest);
        let whole = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap(),
        };
        let mut rest = whole;
        while let Some(next) = rest.chars().next() {
            if next == '\x1b' {
                let Some(end) = rest.find(|one: char| one.is_ascii_alphabetic()) else {
                    break;
                };
                self.control(&rest[1..=end]);
                rest = &rest[end + 1..];
            } else {
                self.show(next);
                rest = &rest[next.len_utf8()..];
            }
        }
        let played = whole.len() - rest.len();
        self.rest = bytes[played..].to_vec();
    }

    fn show(&mut self, one: char) {
        match one {
            '\r' => self.column = 0,
            '\n' => {
                self.row += 1;
                let lines = self.lines.len().max(self.row + 1);
                self.lines.resize(lines, String::new());
                self.frame_lines = self.frame_lines.max(self.row - self.frame_from);
            }
            shown => {
                self.has_wrapped |= self.column >= self.columns;
                let mut line: Vec<char> = self.lines[self.row].chars().collect();
                line.resize(line.len().max(self.column + 1), ' ');
                line[self.column] = shown;
                self.lines[self.row] = line.into_iter().collect();
                self.column += 1;
            }
        }
    }

    fn control(&mut self, sequence: &str) {
        let (body, last) = sequence.split_at(sequence.len() - 1);
        let number = body.strip_prefix('[').unwrap();
        match last {
            "A" => {
                let above = self.row.checked_sub(number.parse().unwrap());
                self.row = above.unwrap_or_else(|| panic!("{number} lines up: {self:#?}"));
            }
            "J" => {
                self.lines.truncate(self.row + 1);
                let kept: String = self.lines[self.row].chars().take(self.column).collect();
                self.lines[self.row] = kept;
                self.frame_lines_max = self.frame_lines_max.max(self.frame_lines);
                (self.frames, self.frame_from, self.frame_lines) = (self.frames + 1, self.row, 0);
            }
            "m" => {}
            _ => panic!("an unknown sequence {sequence:?}"),
        }
    }

    /// Wraps lines that are too long for the new width.
    fn reflow(&mut self, columns: usize) {
        let (mut lines, mut row) = (Vec::new(), 0);
        for (number, line) in self.lines.iter().enumerate() {
            if number == self.row {
                row = lines.len();
            }
            let characters: Vec<char> = line.trim_end().chars().collect();
            let parts = characters.chunks(columns).map(|part| part.iter().collect());
            let before = lines.len();
            lines.extend(parts);
            if lines.len() == before {
                lines.push(String::new());
            }
        }
        (self.lines, self.row, self.columns) = (lines, row, columns);
    }
}
