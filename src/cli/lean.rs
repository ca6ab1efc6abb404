//! Reading a command line without describing all commands first.
//!
//! Describing every option of every command takes longer than all else that an `enqueue` does before
//! it opens the store, and scripts put steps in by the thousand, a process each. So a command line
//! that begins with that command is read by a description of it alone. Whatever is not a plain
//! success (help, a mistake) is left to the whole description, and said as that says it.

use std::ffi::OsString;

use clap::{Args as _, FromArgMatches as _};

use super::enqueue::EnqueueArgs;
use super::{Cli, Global};

/// The command as it is named, and its other names.
const NAME: &str = "enqueue";
pub(super) const ALIASES: [&str; 2] = ["add", "submit"];

/// Reads a command line.
///
/// # Errors
///
/// It is none, or asks for help: the library's word on it.
pub(super) fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    use clap::Parser as _;
    match enqueue_only(&args) {
        Some(cli) => Ok(cli),
        None => Cli::try_parse_from(args),
    }
}

/// `None` if it is to be read by the whole description.
fn enqueue_only(args: &[OsString]) -> Option<Cli> {
    let named = args.get(1)?.to_str()?;
    if named != NAME && !ALIASES.contains(&named) {
        return None;
    }
    let enqueue = EnqueueArgs::augment_args(clap::Command::new(NAME)).visible_aliases(ALIASES);
    let matches = Global::augment_args(clap::Command::new("fairq"))
        .subcommand(enqueue)
        .try_get_matches_from(args)
        .ok()?;
    Cli::from_arg_matches(&matches).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    fn line(words: &str) -> Vec<OsString> {
        words.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_is_read_by_less_is_the_same() {
        for words in [
            "fairq enqueue true",
            "fairq add --quiet true",
            "fairq submit -k alice --band 3 -- convert -x a b",
            "fairq enqueue --store /s --from - --color never",
            "fairq enqueue --from-ndjson - --config c.toml",
            "fairq enqueue --tag a --tag b --env A=B --limit l --retries 3 make -j8",
            "fairq enqueue --after a17 -n name --delay 5s --store=x true",
        ] {
            let lean = enqueue_only(&line(words)).unwrap_or_else(|| panic!("{words}"));
            let whole = Cli::try_parse_from(line(words)).unwrap();
            assert_eq!(format!("{lean:?}"), format!("{whole:?}"), "{words}");
        }
    }

    #[test]
    fn mistakes_and_help_are_left_to_the_whole() {
        for words in [
            "fairq",
            "fairq status",
            "fairq --store s enqueue true",
            "fairq enqueue --help",
            "fairq enqueue --no-such true",
            "fairq enqueue --weight x true",
            "fairq enqueue --help-me",
        ] {
            assert!(enqueue_only(&line(words)).is_none(), "{words}");
        }
    }

    #[test]
    fn its_names_are_those_of_the_whole() {
        let whole = Cli::command();
        let enqueue = whole.find_subcommand(NAME).unwrap();
        assert_eq!(enqueue.get_name(), NAME);
        assert!(enqueue.get_visible_aliases().eq(ALIASES));
    }
}
