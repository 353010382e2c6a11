//! `docs/commands.md`: every command and flag, from the definitions that the program parses its arguments with.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::{assert_kept, cell};
use crate::cmd::{Arguments, examples::EXAMPLES};

#[test]
fn the_documentation_lists_every_command_and_flag() {
    let mut program = Arguments::command();
    program.build();
    let mut page = HEAD.to_owned();
    write_global(&program, &mut page);
    for command in shown(&program) {
        write_command(command, "weir", &BTreeSet::new(), &mut page);
    }
    page.push_str(TAIL);
    assert_kept("commands.md", &page);
}

/// Writes the flags that every command accepts.
fn write_global(program: &Command, page: &mut String) {
    page.push_str("\n## Every command\n\n");
    page.push_str(TABLE);
    for argument in program.get_arguments().filter(|one| one.is_global_set()) {
        write_row(argument, page);
    }
    page.push_str("| `-h`, `--help` | | A summary with `-h`, all of it with `--help` |\n");
    page.push_str("| `-V`, `--version` | | The version of the program |\n");
}

/// Writes the sections of a command and of its subcommands. Flags that the parent has too are listed by name only.
fn write_command(command: &Command, parent: &str, known: &BTreeSet<String>, page: &mut String) {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    write!(page, "\n## `{name}`\n\n{}\n", about.trim()).unwrap();
    if let Some((_, examples)) = EXAMPLES.iter().find(|(path, _)| *path == name) {
        let examples = examples.join("\n");
        write!(page, "\n{NEEDS}\n```sh\n{examples}\n```\n").unwrap();
    }
    let mut rows = BTreeSet::new();
    let mut own = String::new();
    let mut repeated = Vec::new();
    for argument in command.get_arguments().filter(|one| is_listed(one)) {
        let mut row = String::new();
        write_row(argument, &mut row);
        if known.contains(&row) {
            repeated.push(written(argument));
        } else {
            own.push_str(&row);
        }
        rows.insert(row);
    }
    if !own.is_empty() {
        write!(page, "\n{TABLE}{own}").unwrap();
    }
    if !repeated.is_empty() {
        let repeated = repeated.join(", ");
        let anchor = parent.replace(' ', "-");
        write!(page, "\nAs in [`{parent}`](#{anchor}): {repeated}.\n").unwrap();
    }
    for subcommand in shown(command) {
        write_command(subcommand, &name, &rows, page);
    }
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let commands = command.get_subcommands();
    commands.filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

fn is_listed(argument: &Arg) -> bool {
    let is_general = matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    !argument.is_hide_set() && !argument.is_global_set() && !is_general
}

fn write_row(argument: &Arg, page: &mut String) {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let (help, said) = match help.rsplit_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), default.trim_end_matches(']').to_owned()),
        None => (help, String::new()),
    };
    let mut meaning = cell(&help);
    let values = argument.get_possible_values();
    if argument.get_action().takes_values() && !values.is_empty() {
        for value in values.iter().filter(|value| !value.is_hide_set()) {
            let about = value
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            write!(meaning, "<br>`{}`: {}", value.get_name(), cell(&about)).unwrap();
        }
    }
    if let Some(variable) = argument.get_env() {
        write!(meaning, "<br>Variable: `{}`", variable.display()).unwrap();
    }
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.display()))
        .collect();
    let takes_value = argument.get_action().takes_values();
    let default = match (defaults.is_empty(), takes_value) {
        (false, true) => defaults.join(", "),
        _ if argument.is_required_set() => "required".to_owned(),
        _ => cell(&said),
    };
    writeln!(page, "| {} | {default} | {meaning} |", written(argument)).unwrap();
}

/// Returns a flag or an argument as it stands on the command line.
fn written(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    match argument.get_long() {
        Some(long) if argument.get_action().takes_values() => format!("`--{long} {value}`"),
        Some(long) => format!("`--{long}`"),
        None => format!("`{value}`"),
    }
}

/// Keeps the test of the documents from running examples.
const NEEDS: &str = "<!-- needs: the relays, servers and files that the examples name -->";

const TABLE: &str = "| flag | default | meaning |\n|---|---|---|\n";

const HEAD: &str = "\
# Commands

Every command and flag of `weir`, as `weir COMMAND --help` shows them. A name in capitals without
dashes is a positional argument.

- Times have a unit (`250ms`, `5s`, `1m`). Rates of links are bits per second (`500k`, `5M`).
- A first Ctrl-C ends a command cleanly, with its report. A second one ends it at once (code 130; 143 after SIGTERM).
- Exit codes, unless a command says otherwise: 0 success; 1 something that was asked for does not hold; 2 an error, which standard error names.

`cargo test -p weir --bin weir` compares this page with the program; `UPDATE_DOCS=1` before it writes the page.
";

const TAIL: &str = "
## Service levels

`--slo` is a list of clauses `METRIC OPERATOR VALUE` with commas between. Operators: `=`, `<`, `<=`, `>`, `>=`.

| metric | value | counts |
|---|---|---|
| `loss` | objects, or a share such as `0.1%` | objects lost |
| `late` | objects, or a share | objects received after their `ttl` |
| `failed` | subscriptions, or a share | subscriptions failed or incomplete; without subscribers, tracks not published to their end |
| `p50`, `p90`, `p99`, `p99.9`, `max` | a time such as `100ms` | latency over all objects |
| `cpu` | a share such as `95%` | the relay's CPU in the steady window; 100 % is one core |

- Every service level ends with `altered=0` if anybody subscribes, whether it is asked for or not.
- The verdict names the first clause that broke, in the order of `--slo`.
- What could not be measured does not hold. A clause that no run of this kind can measure is refused; the default level leaves it out.

## What ends a probe early

`weir bench find-max` ends a probe that can no longer hold, unless `--whole-probes` is given. Its record says `ended_early`. Any of these ends it:

- Subscribers: at least half of them failed, and at least twice what `failed` allows.
- Latency: after two judged seconds, so many objects took over four times what a clause allows that it breaks even if all others are quick.
- Loss: twice the allowed objects, and at least 2 % of all objects of the probe, did not come within the time that subscribers wait for them (`ttl`,
  at least 2 s).

`late` and `cpu` end nothing. If the hypervisor gave 2 % of a core or more to others during a probe that did not hold, the probe is repeated
after ten seconds, up to four times at each load.

## What `--resume` compares

The record in `--json` must be of the same search: dimension, profile, service level, relay, publish flow, subscribe flow, form of messages, and
the numbers that are not searched. Otherwise the error names what differs. A record holds no reports, so `--html` is refused for a search that
is over.

## Files of comparisons

[comparison-files.md](comparison-files.md) lists the keys of the files of `weir bench compare` and `weir h3 compare`.
";
