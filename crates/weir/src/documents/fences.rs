//! The commands in documents and in help texts: each one that calls weir has flags that exist.

use std::collections::BTreeSet;

use clap::error::ErrorKind;
use clap::{Command, Parser as _};

use super::folder;
use crate::cmd::{Arguments, examples::EXAMPLES};

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
fn commands_inside_of_sentences_have_flags_that_exist() {
    let mut problems = Vec::new();
    let mut count = 0;
    for (name, text) in documents() {
        for (line, command) in inline_commands(&text) {
            count += 1;
            let words = command
                .split_whitespace()
                .map(|word| word.replace('\'', ""));
            let Err(error) = Arguments::try_parse_from(words) else {
                continue;
            };
            // Such a command may be a part of one: values and required arguments may be missing.
            let is_wrong = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand];
            if is_wrong.contains(&error.kind()) {
                let problem = error.to_string();
                let problem = problem.lines().next().unwrap_or_default();
                problems.push(format!("{name}:{line}: {command}: {problem}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn every_help_has_examples_that_can_be_parsed() {
    let mut program = Arguments::definition();
    program.build();
    let mut unused: BTreeSet<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
    expect_examples(&program, "weir", &mut unused);
    assert!(
        unused.is_empty(),
        "no command has these examples: {unused:?}"
    );
}

/// Asserts that the help of a command shows its examples before its usage, and that the program can parse them.
fn expect_examples(command: &Command, path: &str, unused: &mut BTreeSet<&str>) {
    let known = EXAMPLES.iter().find(|(known, _)| *known == path);
    let (known, examples) = known.unwrap_or_else(|| panic!("{path}: no examples"));
    unused.remove(known);
    assert!(examples.len() >= 2, "{path}: expected two examples");
    for help in [
        command.clone().render_help(),
        command.clone().render_long_help(),
    ] {
        let help = help.to_string();
        let before_usage = help.split("\nUsage: ").next().unwrap();
        for example in *examples {
            let is_shown = example.lines().all(|line| before_usage.contains(line));
            assert!(is_shown, "{path}: {example:?} is not in {before_usage:?}");
        }
    }
    for example in *examples {
        let commands = commands(example);
        let mut calls = commands.iter().filter_map(|one| arguments_of_weir(one));
        let call = calls
            .next()
            .unwrap_or_else(|| panic!("{path}: {example:?} does not call weir"));
        assert_eq!(parse(&call), Ok(()), "{path}: {example:?}");
    }
    let shown = command.get_subcommands();
    for subcommand in shown.filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        let path = format!("{path} {}", subcommand.get_name());
        expect_examples(subcommand, &path, unused);
    }
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

/// Returns the README and the pages of `docs/`, with their names.
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

/// Returns the shell scripts of a page, each with the number of its first line.
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

/// Returns the code in sentences that calls weir, each with the number of its line. `COMMAND` stands for any subcommand.
fn inline_commands(page: &str) -> Vec<(usize, &str)> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        is_inside ^= line.starts_with("```");
        if !is_inside {
            let code = line.split('`').skip(1).step_by(2);
            let calls = code.filter(|code| code.starts_with("weir ") && !code.contains("COMMAND"));
            found.extend(calls.map(|code| (number, code)));
        }
    }
    found
}

/// Returns the commands of a script, as words. Quotes, comments, pipes, continued lines and here-documents are understood.
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

/// Returns the arguments of a command that calls weir; `None` if it calls another program.
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

/// Replaces a variable by a number, and a host that does not exist by an address.
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
