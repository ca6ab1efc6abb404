//! The knobs themselves: names, words, ranges.

use std::fmt;
use std::str::FromStr;

use crate::model::Span;

/// The most workers: each is a thread and a child process.
pub const MAX_WORKERS: u32 = 4_096;
/// The longest heartbeat and the longest gap: an hour. Beyond it a run looks dead.
pub(super) const MAX_WAIT_MS: u64 = 3_600_000;
/// The most output that is kept inline: a row of this size still travels in one piece.
pub(super) const MAX_INLINE_BYTES: u64 = 16 * 1024 * 1024;
/// The word for no end.
pub(super) const FOREVER: &str = "forever";
/// The longest grace: a day.
const MAX_GRACE: Span = Span::from_millis(86_400_000);

/// Defines a setting that is one of a few words.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$each])* $variant,)+
        }

        impl $name {
            /// The words, in the order of the documentation.
            pub const WORDS: &[&str] = &[$($word),+];

            /// Returns the word for it.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("is not one of {}", Self::WORDS.join(", "))),
                }
            }
        }
    };
}

choice! {
    /// How new steps are spread over the shards.
    Placement {
        /// All steps of a key go to one shard, so that they are served in order of arrival.
        #[default]
        Key = "key",
        /// Each step goes to the next shard, whatever its key.
        Spread = "spread",
    }
}

choice! {
    /// How keys of one band take turns.
    Pick {
        /// By virtual time: no key is ever more than a step from its share.
        #[default]
        Stride = "stride",
        /// By a weighted draw: shares hold on average.
        Lottery = "lottery",
    }
}

choice! {
    /// How hard a commit presses the disk.
    Durability {
        /// What was enqueued survives a loss of power; the last claims and results survive any crash
        /// of processes, but a loss of power may forget them, and their steps run again.
        #[default]
        Normal = "normal",
        /// Everything survives a loss of power; every commit waits for the disk.
        Full = "full",
    }
}

choice! {
    /// Whether output is coloured.
    ColorChoice {
        /// On a terminal that can, unless `NO_COLOR` is set.
        #[default]
        Auto = "auto",
        /// Everywhere.
        Always = "always",
        /// Nowhere.
        Never = "never",
    }
}

/// A setting that a flag, a variable or a line of the file can give as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// `workers`.
    Workers,
    /// `shards`.
    Shards,
    /// `placement`.
    Placement,
    /// `pick`.
    Pick,
    /// `durability`.
    Durability,
    /// `default_band`.
    DefaultBand,
    /// `color`.
    Color,
    /// `heartbeat_ms`.
    HeartbeatMs,
    /// `min_gap_ms`.
    MinGapMs,
    /// `inline_output_bytes`.
    InlineOutputBytes,
    /// `grace`.
    Grace,
    /// `keep`.
    Keep,
}

/// What type a knob's value has in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A whole number.
    Number,
    /// A string.
    Word,
    /// Either.
    NumberOrWord,
}

impl Knob {
    /// All knobs, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Workers,
        Self::Shards,
        Self::Placement,
        Self::Pick,
        Self::Durability,
        Self::DefaultBand,
        Self::Color,
        Self::HeartbeatMs,
        Self::MinGapMs,
        Self::InlineOutputBytes,
        Self::Grace,
        Self::Keep,
    ];

    /// Returns its key in the file.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Shards => "shards",
            Self::Placement => "placement",
            Self::Pick => "pick",
            Self::Durability => "durability",
            Self::DefaultBand => "default_band",
            Self::Color => "color",
            Self::HeartbeatMs => "heartbeat_ms",
            Self::MinGapMs => "min_gap_ms",
            Self::InlineOutputBytes => "inline_output_bytes",
            Self::Grace => "grace",
            Self::Keep => "keep",
        }
    }

    /// Returns what it does, in one sentence for people, with its default.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Workers => "steps that a run executes at once (default: the number of CPUs)",
            Self::Shards => "shards of a new store (default: the number of CPUs, at most 4)",
            Self::Placement => {
                "where a new step goes: key (one shard a key, the default) or spread (the next shard)"
            }
            Self::Pick => {
                "how keys take turns: stride (exact shares, the default) or lottery (shares on average)"
            }
            Self::Durability => {
                "what survives a loss of power: normal (what was enqueued, the default) or full (results too)"
            }
            Self::DefaultBand => "the band of a step that names none (default: 100)",
            Self::Color => "coloured output: auto (the default), always or never",
            Self::HeartbeatMs => {
                "milliseconds until an idle shard is looked at again (default: 1000)"
            }
            Self::MinGapMs => "least milliseconds between two looks at a shard (default: 0)",
            Self::InlineOutputBytes => {
                "output up to this size is kept in the store's tables (default: 65536)"
            }
            Self::Grace => "time between asking a step to end and killing it (default: 5s)",
            Self::Keep => {
                "how long runners keep steps that are over: forever (the default) or a time such as 30d"
            }
        }
    }

    /// Returns the variable that sets it: `FAIRQ_` and the key.
    pub fn variable(self) -> String {
        format!("FAIRQ_{}", self.key().to_ascii_uppercase())
    }

    /// Returns the flag that sets it, where a command has one.
    pub fn flag(self) -> String {
        format!("--{}", self.key().replace('_', "-"))
    }

    pub(super) const fn shape(self) -> Shape {
        match self {
            Self::Workers
            | Self::Shards
            | Self::HeartbeatMs
            | Self::MinGapMs
            | Self::InlineOutputBytes => Shape::Number,
            Self::Placement | Self::Pick | Self::Durability | Self::Color | Self::Keep => {
                Shape::Word
            }
            Self::DefaultBand | Self::Grace => Shape::NumberOrWord,
        }
    }
}

/// Reads a whole number of a range; only plain digits count, so that nothing is misread.
pub(super) fn whole<N: TryFrom<u64>>(text: &str, low: u64, high: u64) -> Result<N, String> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain
        .then(|| text.parse::<u64>().ok())
        .flatten()
        .filter(|number| (low..=high).contains(number))
        .and_then(|number| N::try_from(number).ok())
        .ok_or_else(|| format!("is not a whole number from {low} to {high}"))
}

/// Reads a grace: a duration of at most a day.
pub(super) fn grace(text: &str) -> Result<Span, String> {
    let span: Span = text
        .parse()
        .or(Err("is not a duration such as 5s, 250ms or 1m30s"))?;
    if span > MAX_GRACE {
        return Err("is longer than a day".to_owned());
    }
    Ok(span)
}

/// Reads how long steps are kept that are over; `None` for ever.
pub(super) fn keep(text: &str) -> Result<Option<Span>, String> {
    if text == FOREVER {
        return Ok(None);
    }
    let span: Option<Span> = text.parse().ok();
    let span = span.filter(|span| span.millis() > 0);
    span.map(Some)
        .ok_or_else(|| format!("is neither {FOREVER} nor a duration such as 30d or 12h"))
}
