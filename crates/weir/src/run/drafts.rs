//! The drafts of MOQT that clients offer, from flags.

use clap::Args;
use weir_moqt::draft::Draft;

use super::{options::Flow, preset::Preset};

// The flags of all commands with clients. No doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DraftArguments {
    /// Drafts of MOQT to offer, with commas between, such as 22,18; the relay chooses [default: all, newest first]
    #[arg(
        long = "draft",
        value_name = "DRAFTS",
        value_delimiter = ',',
        value_parser = draft
    )]
    drafts: Vec<Draft>,
    /// Make of the relay: sets the draft, and how tracks are offered and delivered, to what works with it, unless flags say
    /// otherwise
    #[arg(long, value_enum, value_name = "MAKE")]
    preset: Option<Preset>,
}

impl DraftArguments {
    /// Returns the drafts to offer, as ALPN names, the preferred one first.
    pub(crate) fn protocols(&self) -> Vec<&'static str> {
        let known = self.preset.map_or(&[][..], |preset| preset.quirks().drafts);
        match (&self.drafts[..], known) {
            ([], []) => protocols(),
            ([], known) => known.to_vec(),
            (given, _) => {
                let mut offered = Vec::new();
                for alpn in given.iter().map(|draft| draft.alpn()) {
                    if !offered.contains(&alpn) {
                        offered.push(alpn);
                    }
                }
                offered
            }
        }
    }

    /// Returns the delivery strategy for live streams that the relay's make needs, if not every one works.
    pub(crate) fn strategy(&self) -> Option<&'static str> {
        self.preset.and_then(|preset| preset.quirks().strategy)
    }

    /// Returns the only way to offer tracks that the relay's make permits, if there is only one.
    pub(crate) fn publish_flow(&self) -> Option<Flow> {
        self.preset.and_then(|preset| preset.quirks().publish_flow)
    }
}

/// Returns the drafts that weir supports, as ALPN names, the preferred one first.
pub(crate) fn protocols() -> Vec<&'static str> {
    Draft::alpns().to_vec()
}

/// Parses the name of a draft: its ALPN or its number.
pub(crate) fn draft(name: &str) -> Result<Draft, String> {
    Draft::by_name(name).ok_or_else(Draft::expected)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        draft: DraftArguments,
    }

    fn parsed(arguments: &[&str]) -> Result<DraftArguments, String> {
        let arguments = ["weir"].iter().chain(arguments);
        let command = Command::try_parse_from(arguments).map_err(|error| error.to_string())?;
        Ok(command.draft)
    }

    fn offered(arguments: &[&str]) -> Result<Vec<&'static str>, String> {
        parsed(arguments).map(|draft| draft.protocols())
    }

    #[test]
    fn a_flag_limits_the_drafts_and_orders_them() {
        assert_eq!(offered(&[]), Ok(protocols()));
        assert_eq!(offered(&["--draft", "18"]), Ok(vec!["moqt-18"]));
        let two = offered(&["--draft", "moqt-18,22"]);
        assert_eq!(two, Ok(vec!["moqt-18", "moqt-22"]));
        assert_eq!(offered(&["--draft", "22,moqt-22"]), Ok(vec!["moqt-22"]));
        let error = offered(&["--draft", "17"]).unwrap_err();
        let problem = "expected one of moqt-22, moqt-21, moqt-20, moqt-19, moqt-18, or its number";
        assert!(error.contains(problem), "{error}");
    }

    #[test]
    fn a_preset_sets_what_no_flag_says() {
        let preset = ["--preset", "moq-relay-ietf"];
        assert_eq!(offered(&preset), Ok(vec!["moqt-18"]));
        let flow = |arguments: &[&str]| parsed(arguments).unwrap().publish_flow();
        assert_eq!(flow(&preset), Some(Flow::Namespace));
        assert_eq!((flow(&[]), flow(&["--preset", "weir"])), (None, None));
        let strategy = |arguments: &[&str]| parsed(arguments).unwrap().strategy();
        assert_eq!((strategy(&[]), strategy(&preset)), (None, Some("skip")));
        let both = [&preset[..], &["--draft", "19"]].concat();
        assert_eq!(offered(&both), Ok(vec!["moqt-19"]));
        let error = offered(&["--preset", "moq-relays"]).unwrap_err();
        assert!(
            error.contains("weir, moq-relay-ietf, moq-relay, laps"),
            "{error}"
        );
    }
}
