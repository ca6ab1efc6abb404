//! `fairq pause` and `fairq resume`: what does not start for a while.

use clap::Args;
use serde::Serialize;

use super::ring_all;
use crate::cli::render::text;
use crate::cli::{Context, Done, words};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Band, FairnessKey};
use crate::store::sqlite::Mode;
use crate::store::{Pause, Paused, Read as _, Steer as _};

/// Stop the start of steps, also of those to come, until it is resumed
///
/// Of a band, of a key, of a key at one band, or of everything. It lasts until `fairq resume` takes it
/// back, whatever becomes of runners and the machine. What runs already goes on.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq pause -k alice                        nothing of alice starts
  fairq pause -b 200                          nothing of band 200
  fairq pause --all                           nothing at all")]
pub(in crate::cli) struct PauseArgs {
    #[command(flatten)]
    what: What,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Take a pause back
///
/// The one that was made with the same key and band. Others that cover the same steps stay, and are
/// named. --all takes back every pause there is. Exits with 3 if there was none.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq resume -k alice
  fairq resume --all                          every pause that there is")]
pub(in crate::cli) struct ResumeArgs {
    #[command(flatten)]
    what: What,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is to be paused.
#[derive(Debug, Args)]
struct What {
    /// Steps of this key
    #[arg(short, long, value_name = "KEY")]
    key: Option<FairnessKey>,
    /// Steps of this band, by number or name
    #[arg(short, long, value_name = "BAND", allow_hyphen_values = true)]
    band: Option<String>,
    /// Everything
    #[arg(long, conflicts_with_all = ["key", "band"])]
    all: bool,
}

impl What {
    fn pause(&self, context: &Context) -> Result<Pause> {
        if self.key.is_none() && self.band.is_none() && !self.all {
            return Err(Error::new(ErrorKind::Usage, "nothing was named")
                .hint("give --key, --band or both, or --all for everything"));
        }
        let band = self.band.as_ref();
        Ok(Pause {
            band: band
                .map(|band| words::band(band, &context.settings))
                .transpose()?,
            key: self.key.clone(),
        })
    }
}

/// A pause, in the form that scripts rely on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct PauseJson {
    /// Null stands for all bands.
    band: Option<Band>,
    /// Null stands for all keys.
    key: Option<FairnessKey>,
    since: String,
}

#[derive(Serialize)]
struct Pauses {
    /// Those that were taken back; null where that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed: Option<Vec<PauseJson>>,
    /// What is paused now.
    paused: Vec<PauseJson>,
}

impl PauseJson {
    pub(in crate::cli) fn new(paused: &Paused) -> Self {
        Self {
            band: paused.what.band,
            key: paused.what.key.clone(),
            since: paused.since.to_string(),
        }
    }
}

fn json(pauses: &[Paused]) -> Vec<PauseJson> {
    pauses.iter().map(PauseJson::new).collect()
}

/// Names what a pause covers: `key alice of band 10`. Not yet made safe to show.
pub(in crate::cli) fn name(what: &Pause) -> String {
    match (&what.key, what.band) {
        (Some(key), Some(band)) => format!("key {key} of band {band}"),
        (Some(key), None) => format!("key {key}"),
        (None, Some(band)) => format!("band {band}"),
        (None, None) => "everything".to_owned(),
    }
}

/// Returns the command that takes a pause back.
pub(in crate::cli) fn undo(what: &Pause) -> String {
    let mut command = "fairq resume".to_owned();
    if let Some(key) = &what.key {
        let key = crate::cli::render::quote::word_shown(key.as_str().as_ref());
        command.push_str(&format!(" --key {key}"));
    }
    if let Some(band) = what.band {
        command.push_str(&format!(" --band {band}"));
    }
    if what.key.is_none() && what.band.is_none() {
        command.push_str(" --all");
    }
    command
}

/// Says of each pause that it is there, and how it is taken back.
pub(in crate::cli) fn announce(context: &mut Context, pauses: &[Paused]) {
    for paused in pauses {
        let since = context.zone.show(paused.since);
        let (name, undo) = (name(&paused.what), undo(&paused.what));
        let line = format!("paused: {name}, since {since}; {undo} takes that back");
        context.screen.talk(&text::shown(line));
    }
}

pub(in crate::cli) fn pause(args: &PauseArgs, context: &mut Context) -> Result<Done> {
    let what = args.what.pause(context)?;
    // Made if there is none: what is enqueued first is to be covered as well.
    let store = context.store(Mode::Visit)?;
    store.pause(&what, context.clock.now())?;
    ring_all(&store);
    let pauses = store.pauses()?;
    if args.json {
        context.screen.json(&Pauses {
            resumed: None,
            paused: json(&pauses),
        })?;
    } else {
        let own: Vec<Paused> = pauses.into_iter().filter(|it| it.what == what).collect();
        announce(context, &own);
    }
    Ok(Done::Well)
}

pub(in crate::cli) fn resume(args: &ResumeArgs, context: &mut Context) -> Result<Done> {
    let what = args.what.pause(context)?;
    let Some(store) = context.existing_store()? else {
        return Err(not_paused(&what));
    };
    let before = store.pauses()?;
    let (meant, others): (Vec<Paused>, Vec<Paused>) = before
        .into_iter()
        .partition(|paused| args.what.all || paused.what == what);
    let mut resumed = Vec::new();
    for paused in meant {
        if store.resume(&paused.what)? {
            resumed.push(paused);
        }
    }
    ring_all(&store);
    if args.json {
        context.screen.json(&Pauses {
            resumed: Some(json(&resumed)),
            paused: json(&others),
        })?;
    } else {
        for one in &resumed {
            let line = format!("resumed: {}", name(&one.what));
            context.screen.talk(&text::shown(line));
        }
        announce(context, &others);
    }
    if resumed.is_empty() {
        return Err(not_paused(&what));
    }
    Ok(Done::Well)
}

fn not_paused(what: &Pause) -> Error {
    let all = what.key.is_none() && what.band.is_none();
    let what = if all {
        "nothing is paused".to_owned()
    } else {
        format!("{} is not paused", name(what))
    };
    Error::new(ErrorKind::NotFound, what).hint("fairq status names what is paused")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_named_with_the_command_that_takes_it_back() {
        let key: FairnessKey = "al ice".parse().unwrap();
        for (band, key, named, command) in [
            (None, None, "everything", "fairq resume --all"),
            (Some(7), None, "band 7", "fairq resume --band 7"),
            (
                None,
                Some(&key),
                "key al ice",
                "fairq resume --key 'al ice'",
            ),
            (
                Some(7),
                Some(&key),
                "key al ice of band 7",
                "fairq resume --key 'al ice' --band 7",
            ),
        ] {
            let what = Pause {
                band: band.and_then(Band::new),
                key: key.cloned(),
            };
            assert_eq!(name(&what), named);
            assert_eq!(undo(&what), command);
        }
    }
}
