//! Fuzzing of the relay's settings: a file, and variables of the environment over it.

use crate::relay::config::{Configured, VARIABLE_PREFIX, differences};

/// Reads `input` as a file of settings. A line that begins with `$` is a variable of the environment instead. Checks that
/// each problem is one line that begins with a place, and that the printed configuration is read as the same one.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (variables, file): (Vec<&str>, Vec<&str>) =
        text.split('\n').partition(|line| line.starts_with('$'));
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .filter_map(|line| line[1..].split_once('='))
        .collect();
    let environment = |name: &str| {
        let name = name.strip_prefix(VARIABLE_PREFIX)?;
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let file = file.join("\n");
    let configured = match Configured::read(Some((FILE, &file)), environment, Vec::new()) {
        Ok(configured) => configured,
        Err(problems) => {
            assert!(!problems.is_empty(), "a refusal has a reason");
            for problem in problems {
                assert!(!problem.contains(char::is_control), "{problem:?}");
                assert!(problem.contains(": "), "{problem:?}");
            }
            return;
        }
    };
    let printed = configured.print();
    let again = Configured::read(Some((FILE, &printed)), |_| None, Vec::new());
    let again = again.unwrap_or_else(|problems| panic!("{problems:?} in {printed}"));
    // The printed texts of these URLs leave out their secrets.
    let mut differing = differences(&configured.config, &again.config);
    differing.retain(|key| !["auth.jwt.jwks_url", "fleet.nats"].contains(key));
    assert_eq!(differing, [""; 0], "{printed}");
    assert_eq!(again.print(), printed);
}

/// The name of the file.
const FILE: &str = "relay.toml";
