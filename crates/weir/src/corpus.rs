//! Replays the committed fuzz corpora through the functions that the fuzz targets call.

#[path = "../../../fuzz/src/bus.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod bus;
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod replaying;
#[path = "../../../fuzz/src/settings.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod settings;
#[path = "../../../fuzz/src/tokens.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod tokens;

#[test]
fn entries_of_the_registry_and_messages_of_agents() {
    replaying::replay("bus", bus::run);
}

#[test]
fn settings_of_relays() {
    replaying::replay("settings", settings::run);
}

#[test]
fn tokens_and_keys() {
    replaying::replay("tokens", tokens::run);
}
