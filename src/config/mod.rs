//! Every knob, its default and its check; where each value came from.
//!
//! A flag wins over the environment, the environment over the file, the file over the default.
//! A value that is wrong is an error even where a better one hides it: nobody wants to learn of it
//! on the day the flag is left out. Nothing here is read from the process; [`Surroundings`] brings
//! it, so that tests own it.

mod file;
mod knob;
mod places;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

pub use self::knob::{ColorChoice, Durability, Knob, MAX_WORKERS, Pick, Placement};
pub use self::places::{Cpus, Surroundings};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Band, Policy, ShardId, Span};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A project's `.fairq` directory above the working directory; only the store comes from it.
    Project,
    /// A variable of the environment.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Project => f.write_str("project directory"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// What the command line says about the settings.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`: the file to read.
    pub config: Option<PathBuf>,
    /// `--store`: the store's directory.
    pub store: Option<PathBuf>,
    /// The knobs that have been given, as typed.
    pub knobs: BTreeMap<Knob, String>,
}

/// All settings of one invocation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The store's directory, absolute; it need not exist.
    pub store: PathBuf,
    /// What was said of the workers, and of the shards; where nothing was, it goes by the CPUs.
    workers: Option<u32>,
    shards: Option<u8>,
    cpus: Cpus,
    /// How new steps are spread over the shards.
    pub placement: Placement,
    /// How keys of one band take turns.
    pub pick: Pick,
    /// How hard a commit presses the disk.
    pub durability: Durability,
    /// Names for bands.
    pub bands: BTreeMap<String, Band>,
    /// The band of a step that names none.
    pub default_band: Band,
    /// Whether output is coloured.
    pub color: ColorChoice,
    /// How long an idle shard goes without being looked at.
    pub heartbeat: Span,
    /// The shortest time between two looks at a shard.
    pub min_gap: Span,
    /// Output of at most this many bytes a stream is kept in the store's tables.
    pub inline_output_bytes: u64,
    /// How long what is asked to end may take before it is killed.
    pub grace: Span,
    /// How long runners keep steps that are over; `None` for ever.
    pub keep: Option<Span>,
    origins: BTreeMap<String, Origin>,
    config: Option<PathBuf>,
}

/// One line of `config show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The key, as in the file.
    pub key: String,
    /// The value, as one would write it there without quotes.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

impl Settings {
    /// Reads the settings from the file, the environment and the flags.
    ///
    /// # Errors
    ///
    /// `Usage` for a wrong flag; `Config` for a wrong variable, a wrong or unreadable file (only the
    /// file at the default place may be missing), or where no place for the store can be told.
    pub fn load(flags: &Flags, around: &Surroundings) -> Result<Self> {
        let mut settings = Self::defaults(around);
        let file = places::config_file(flags, around)?;
        let mut entries = Vec::new();
        if let Some(found) = &file
            && let Some(text) = found.read()?
        {
            entries = file::entries(&found.path, &text)?;
            settings.config = Some(found.path.clone());
        }
        let mut store_in_file = None;
        // Names first: the default band may be one of them, wherever it stands.
        for entry in &entries {
            if let file::Entry::Band { name, band, origin } = entry {
                settings.bands.insert(name.clone(), *band);
                settings
                    .origins
                    .insert(format!("bands.{name}"), origin.clone());
            }
        }
        for entry in entries {
            match entry {
                file::Entry::Band { .. } => {}
                file::Entry::Store { path, origin } => store_in_file = Some((path, origin)),
                file::Entry::Knob {
                    knob,
                    value,
                    origin,
                } => settings.take(knob, &value, origin, ErrorKind::Config)?,
            }
        }
        for knob in Knob::ALL {
            if let Some(value) = around.text(&knob.variable())? {
                let origin = Origin::Environment(knob.variable());
                settings.take(knob, &value, origin, ErrorKind::Config)?;
            }
        }
        for (knob, value) in &flags.knobs {
            settings.take(*knob, value, Origin::Flag(knob.flag()), ErrorKind::Usage)?;
        }
        let (store, origin) = places::store(flags, around, store_in_file)?;
        settings.store = store;
        settings.origins.insert("store".to_owned(), origin);
        Ok(settings)
    }

    fn defaults(around: &Surroundings) -> Self {
        Self {
            store: PathBuf::new(),
            workers: None,
            shards: None,
            cpus: around.cpus.clone(),
            placement: Placement::default(),
            pick: Pick::default(),
            durability: Durability::default(),
            bands: BTreeMap::new(),
            default_band: Band::DEFAULT,
            color: ColorChoice::default(),
            heartbeat: Span::from_millis(1_000),
            min_gap: Span::from_millis(0),
            inline_output_bytes: 65_536,
            grace: Policy::DEFAULT_GRACE,
            keep: None,
            origins: BTreeMap::new(),
            config: None,
        }
    }

    /// Returns how many steps a run executes at once: as many as there are CPUs, if nobody says otherwise.
    pub fn workers(&self) -> u32 {
        self.workers
            .unwrap_or_else(|| self.cpus.count().clamp(1, MAX_WORKERS))
    }

    /// Returns how many shards a new store gets: as many as there are CPUs and at most 4, if nobody says
    /// otherwise.
    pub fn shards(&self) -> u8 {
        self.shards
            .unwrap_or_else(|| u8::try_from(self.cpus.count().clamp(1, 4)).unwrap_or(4))
    }

    /// Returns the configuration file that has been read, if there was one.
    pub fn config_path(&self) -> Option<&std::path::Path> {
        self.config.as_deref()
    }

    /// Returns the band with this number or configured name.
    ///
    /// # Errors
    ///
    /// `Usage` if it is neither.
    pub fn band(&self, text: &str) -> Result<Band> {
        self.find_band(text)
            .map_err(|reason| Error::new(ErrorKind::Usage, format!("{text:?} {reason}")))
    }

    fn find_band(&self, text: &str) -> Result<Band, String> {
        if let Some(band) = self.bands.get(text) {
            return Ok(*band);
        }
        let number = knob::whole(text, 0, Band::WORST.get().into())
            .ok()
            .and_then(Band::new);
        number.ok_or_else(|| {
            let names = if self.bands.is_empty() {
                "no band has a name (names are given under [bands] in the configuration)".to_owned()
            } else {
                let names: Vec<_> = self.bands.keys().map(String::as_str).collect();
                format!("the named bands are {}", names.join(", "))
            };
            format!(
                "is not a band: it is a number from 0 (most urgent) to {} or a name; {names}",
                Band::WORST
            )
        })
    }

    /// Returns where the value of a key came from.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Returns every setting with its value and origin, in the order of the documentation.
    pub fn shown(&self) -> Vec<Shown> {
        let shown = |key: String, value: String| Shown {
            origin: self.origin(&key).clone(),
            key,
            value,
        };
        let mut all = vec![shown("store".into(), self.store.display().to_string())];
        all.extend(
            Knob::ALL
                .into_iter()
                .map(|knob| shown(knob.key().into(), self.value(knob))),
        );
        all.extend(
            self.bands
                .iter()
                .map(|(name, band)| shown(format!("bands.{name}"), band.to_string())),
        );
        all
    }

    fn value(&self, knob: Knob) -> String {
        match knob {
            Knob::Workers => self.workers().to_string(),
            Knob::Shards => self.shards().to_string(),
            Knob::Placement => self.placement.to_string(),
            Knob::Pick => self.pick.to_string(),
            Knob::Durability => self.durability.to_string(),
            Knob::DefaultBand => self.default_band.to_string(),
            Knob::Color => self.color.to_string(),
            Knob::HeartbeatMs => self.heartbeat.millis().to_string(),
            Knob::MinGapMs => self.min_gap.millis().to_string(),
            Knob::InlineOutputBytes => self.inline_output_bytes.to_string(),
            Knob::Grace => typed(self.grace),
            Knob::Keep => self.keep.map_or_else(|| knob::FOREVER.to_owned(), typed),
        }
    }

    fn take(&mut self, knob: Knob, value: &str, origin: Origin, kind: ErrorKind) -> Result<()> {
        self.set(knob, value).map_err(|reason| {
            let (place, name) = match &origin {
                Origin::File { .. } => (format!("{origin}: "), knob.key().to_owned()),
                Origin::Environment(name) | Origin::Flag(name) => (String::new(), name.clone()),
                Origin::Default | Origin::Project => (String::new(), knob.key().to_owned()),
            };
            Error::new(kind, format!("{place}{name}: {value:?} {reason}")).hint(format!(
                "{}: {}",
                knob.key(),
                knob.doc()
            ))
        })?;
        self.origins.insert(knob.key().to_owned(), origin);
        Ok(())
    }

    fn set(&mut self, knob: Knob, value: &str) -> Result<(), String> {
        match knob {
            Knob::Workers => self.workers = Some(knob::whole(value, 1, MAX_WORKERS.into())?),
            Knob::Shards => {
                self.shards = Some(knob::whole(value, 1, ShardId::MAX_SHARDS.into())?);
            }
            Knob::Placement => self.placement = value.parse()?,
            Knob::Pick => self.pick = value.parse()?,
            Knob::Durability => self.durability = value.parse()?,
            Knob::DefaultBand => self.default_band = self.find_band(value)?,
            Knob::Color => self.color = value.parse()?,
            Knob::HeartbeatMs => {
                self.heartbeat = Span::from_millis(knob::whole(value, 1, knob::MAX_WAIT_MS)?);
            }
            Knob::MinGapMs => {
                self.min_gap = Span::from_millis(knob::whole(value, 0, knob::MAX_WAIT_MS)?);
            }
            Knob::InlineOutputBytes => {
                self.inline_output_bytes = knob::whole(value, 0, knob::MAX_INLINE_BYTES)?;
            }
            Knob::Grace => self.grace = knob::grace(value)?,
            Knob::Keep => self.keep = knob::keep(value)?,
        }
        Ok(())
    }
}

/// Returns a duration as one would type it.
fn typed(span: Span) -> String {
    match span.millis() {
        millis if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        millis => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
