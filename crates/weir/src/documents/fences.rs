//! The commands in the documents: each one that calls weir has flags that exist.

use clap::Parser as _;
use clap::error::ErrorKind;

use super::folder;
use crate::cmd::Arguments;

#[test]
fn the_commands_in_the_documents_can_be_parsed() {
    let mut problems = Vec::new();
    let mut count = 0;
    for (name, text) in documents() {
        for (line, fence) in shell_fences(&text) {
            for command in commands(&fence) {
                let Some(arguments) = arguments_of_weir(&command) else {
                    continue;
                };
                count += 1;
                if let Err(problem) = parse(&arguments) {
                    problems.push(format!("{name}:{line}: {}: {problem}", command.join(" ")));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn commands_are_found_in_a_script_and_wrong_flags_in_them() {
    let script = "\
printf '1\\n' > a.trace
cat > b.toml <<'EOF'
weir is not called here
EOF
TOKEN=1 weir relay --listen '127.0.0.1:1' \\
    --no-such-flag & relay=$!
ffmpeg -i a | weir live publish --listen 127.0.0.1:2 # weir bench
cargo run --release --bin weir -- bench a.ini --relay-pid $relay --relay moqt://a
";
    let commands = commands(script);
    let found: Vec<_> = commands
        .iter()
        .filter_map(|one| arguments_of_weir(one))
        .collect();
    let ends: Vec<&str> = found
        .iter()
        .map(|one| one.last().unwrap().as_str())
        .collect();
    assert_eq!(ends, ["--no-such-flag", "127.0.0.1:2", "moqt://a"]);
    let parsed: Vec<bool> = found.iter().map(|one| parse(one).is_ok()).collect();
    assert_eq!(parsed, [false, true, true]);
}

/// The README and the pages of `docs/`, with their names.
fn documents() -> Vec<(String, String)> {
    let pages = std::fs::read_dir(folder()).unwrap();
    let pages = pages.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = pages
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .chain([folder().join("../README.md")])
        .collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.iter().map(read).collect()
}

/// The scripts of a page, each with the number of its first line.
fn shell_fences(page: &str) -> Vec<(usize, String)> {
    let mut fences: Vec<(usize, String)> = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(page.lines()) {
        if line == "```sh" {
            is_inside = true;
            fences.push((number + 1, String::new()));
        } else if line == "```" {
            is_inside = false;
        } else if is_inside && let Some((_, fence)) = fences.last_mut() {
            fence.push_str(line);
            fence.push('\n');
        }
    }
    fences
}

/// The commands of a script, as words. It knows quotes, comments, pipes, continued lines and here-documents.
fn commands(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ");
    let mut commands = Vec::new();
    let mut end_of_document = None;
    for line in script.lines() {
        match end_of_document {
            Some(end) if line == end => end_of_document = None,
            Some(_) => {}
            None => {
                commands.extend(commands_of_line(line));
                let end = line.split_once("<<").map(|(_, end)| end.trim_matches('\''));
                end_of_document = end;
            }
        }
    }
    commands
}

fn commands_of_line(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = None::<String>;
    let mut quote = None;
    for character in line.chars() {
        match (character, quote) {
            (_, Some(end)) if character == end => quote = None,
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (' ' | '|' | '&' | ';', None) => {
                let last = commands.last_mut().expect("there is always one");
                last.extend(word.take());
                if character != ' ' {
                    commands.push(Vec::new());
                }
            }
            (_, _) => word.get_or_insert_default().push(character),
        }
    }
    let last = commands.last_mut().expect("there is always one");
    last.extend(word);
    commands.retain(|command| !command.is_empty());
    commands
}

/// What a command gives weir, if it calls weir: the words behind the program.
fn arguments_of_weir(command: &[String]) -> Option<Vec<String>> {
    let is_assignment = |word: &&String| {
        word.split('/')
            .next()
            .is_some_and(|start| start.contains('='))
    };
    let first = command.iter().take_while(is_assignment).count();
    let words = &command[first..];
    let program = words.first()?;
    let arguments = if program == "weir" || program.ends_with("/weir") {
        &words[1..]
    } else if program == "cargo" && words.iter().any(|word| word == "weir") {
        let separator = words.iter().position(|word| word == "--")?;
        &words[separator + 1..]
    } else {
        return None;
    };
    let is_before_redirection =
        |word: &&String| !["<", ">", "2>"].iter().any(|mark| word.starts_with(mark));
    let words = arguments.iter().take_while(is_before_redirection);
    Some(words.map(|word| filled_in(word)).collect())
}

/// A word with a number for a variable, and an address for a host that does not exist.
fn filled_in(word: &str) -> String {
    if word.starts_with('$') {
        return "1".to_owned();
    }
    let word = word.replace("relay.example.net", "127.0.0.1");
    word.replace("relay.example", "127.0.0.1")
}

fn parse(arguments: &[String]) -> Result<(), String> {
    let line = ["weir".to_owned()]
        .into_iter()
        .chain(arguments.iter().cloned());
    match Arguments::try_parse_from(line) {
        Ok(_) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()),
    }
}
