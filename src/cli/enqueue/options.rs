//! What can be said of a step, whoever says it: the command line, a line of `--from-ndjson`, or a
//! step of a flow file. One list of words for all three.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::terms::{Codes, OrNone, Places, SignalNumber, Size, Term, term};
use crate::model::{Backoff, FairnessKey, Need, OnLost, Scope, Span, Weight};

/// What is said of a step itself; nothing that is not said is filled in.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(in crate::cli) struct StepOptions {
    /// How urgent it is: a number, lower first, or a name from the configuration [default: 100]
    #[arg(short, long, value_name = "BAND", allow_hyphen_values = true)]
    pub(in crate::cli) band: Option<String>,
    /// Whom it is run for; keys of one band share by weight [default: that of the first step that it
    /// waits for, else "default"]
    #[arg(short, long, value_name = "KEY", value_parser = term::<FairnessKey>)]
    pub(in crate::cli) key: Option<FairnessKey>,
    /// The key's share beside others, a number above 0 [default: 1]
    #[arg(short, long, value_name = "WEIGHT", value_parser = term::<Weight>, allow_hyphen_values = true)]
    pub(in crate::cli) weight: Option<Weight>,
    /// A name for people
    #[arg(short, long, value_name = "NAME")]
    pub(in crate::cli) name: Option<String>,
    /// A label to select by (repeatable)
    #[arg(short, long, value_name = "TAG")]
    pub(in crate::cli) tag: Vec<String>,
    /// The flow that it belongs to
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) flow: Option<String>,
    /// Not before so long from now (90s, 1h30m, 2d)
    #[arg(long, value_name = "DURATION", value_parser = term::<Span>, conflicts_with = "at", allow_hyphen_values = true, help_heading = "When")]
    pub(in crate::cli) delay: Option<Span>,
    /// Not before this time (RFC 3339, now+1h, 16:00)
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    pub(in crate::cli) at: Option<String>,
    /// It fails if it was not started within so long, or by this time; none for never
    #[arg(
        long,
        value_name = "DURATION|TIME",
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    pub(in crate::cli) expire: Option<String>,
    /// Take places of a named limit while it runs (repeatable); none for no limit
    #[arg(long, value_name = "NAME[:PLACES]", value_parser = term::<OrNone<Places>>, help_heading = "When")]
    pub(in crate::cli) limit: Vec<OrNone<Places>>,
    /// How often to try again after a failure [default: 0]
    #[arg(long, value_name = "N", value_parser = term::<u32>, allow_hyphen_values = true, help_heading = "How it is treated")]
    pub(in crate::cli) retries: Option<u32>,
    /// How long to wait before a further try: the first time, how many times as long each further
    /// time, at most how long; less a random part of up to a half [default: 10s,2,1h]
    #[arg(long, value_name = "BASE[,FACTOR[,CAP]]", value_parser = term::<Backoff>, allow_hyphen_values = true, help_heading = "How it is treated")]
    pub(in crate::cli) backoff: Option<Backoff>,
    /// Try again only after these exit codes (1,5-9) [default: none named, which is all but 0]
    #[arg(long, value_name = "CODES", value_parser = term::<OrNone<Codes>>, allow_hyphen_values = true, help_heading = "How it is treated")]
    pub(in crate::cli) retry_on: Option<OrNone<Codes>>,
    /// Never try again after these exit codes [default: none]
    #[arg(long, value_name = "CODES", value_parser = term::<OrNone<Codes>>, allow_hyphen_values = true, help_heading = "How it is treated")]
    pub(in crate::cli) no_retry_on: Option<OrNone<Codes>>,
    /// End a try that runs longer [default: none]
    #[arg(long, value_name = "DURATION", value_parser = term::<OrNone<Span>>, allow_hyphen_values = true, help_heading = "How it is treated")]
    pub(in crate::cli) timeout: Option<OrNone<Span>>,
    /// What asks it to end when its time is over or it is cancelled [default: TERM]
    #[arg(long, value_name = "SIGNAL", value_parser = term::<SignalNumber>, allow_hyphen_values = true, help_heading = "How it is treated")]
    pub(in crate::cli) kill_signal: Option<SignalNumber>,
    /// From being asked to end until it is killed [default: 5s, or as configured]
    #[arg(long, value_name = "DURATION", value_parser = term::<Span>, allow_hyphen_values = true, help_heading = "How it is treated")]
    pub(in crate::cli) grace: Option<Span>,
    /// What becomes of it if its runner dies: retry, fail or hold [default: retry]
    #[arg(long, value_name = "WHAT", value_parser = term::<OnLost>, help_heading = "How it is treated")]
    pub(in crate::cli) on_lost: Option<OnLost>,
    /// Let processes live on that it leaves behind
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "How it is treated"
    )]
    pub(in crate::cli) leave_group: Option<bool>,
    /// Keep so much of each of its streams (64K, 10M), none for no bound [default: none]
    #[arg(long, value_name = "SIZE", value_parser = term::<OrNone<Size>>, allow_hyphen_values = true, help_heading = "How it is treated")]
    pub(in crate::cli) max_output: Option<OrNone<Size>>,
    /// Run it in this directory
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "Where it runs")]
    pub(in crate::cli) cwd: Option<PathBuf>,
    /// Set a variable (NAME=VALUE), or take it over (NAME) (repeatable)
    #[arg(
        short,
        long,
        value_name = "NAME[=VALUE]",
        help_heading = "Where it runs"
    )]
    pub(in crate::cli) env: Vec<OsString>,
    /// Set the variables of this file: NAME=VALUE a line (repeatable)
    #[arg(long, value_name = "FILE", help_heading = "Where it runs")]
    pub(in crate::cli) env_file: Vec<PathBuf>,
    /// Start from an empty environment
    #[arg(long, help_heading = "Where it runs")]
    pub(in crate::cli) clean_env: bool,
}

/// What is said of a step as it is put in, and cannot be changed afterwards.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Ties {
    /// Not before somebody releases it
    #[arg(long, conflicts_with_all = ["delay", "at"], help_heading = "When")]
    pub(super) hold: bool,
    /// Not before these steps have succeeded (a3,a5-a9)
    #[arg(
        long,
        value_name = "IDS",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    pub(super) after: Vec<String>,
    /// Not before these steps have ended, in whatever way
    #[arg(
        long,
        value_name = "IDS",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    pub(super) after_any: Vec<String>,
    /// Not before these steps have failed
    #[arg(
        long,
        value_name = "IDS",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "When"
    )]
    pub(super) after_failed: Vec<String>,
    /// Put it in only if there is no step of this key yet, else print that one's id
    #[arg(long, value_name = "KEY", help_heading = "Once only")]
    pub(super) unique: Option<String>,
    /// What counts as being there: queued, active (queued or running) or kept (ended ones too)
    /// [default: active]
    #[arg(long = "while", value_name = "WHAT", value_parser = term::<Scope>, requires = "unique", help_heading = "Once only")]
    pub(super) scope: Option<Scope>,
}

/// All that is said of one step.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Said {
    #[command(flatten)]
    pub(super) options: StepOptions,
    #[command(flatten)]
    pub(super) ties: Ties,
}

/// A part of the options: how it is read from JSON, and what becomes of it where it was left open.
trait Field {
    fn take(&mut self, value: Value) -> Result<(), String>;
    fn fall_back(&mut self, base: &Self);
}

impl<T: Term + Clone> Field for Option<T> {
    fn take(&mut self, value: Value) -> Result<(), String> {
        *self = Some(T::read(&word(value)?)?);
        Ok(())
    }

    fn fall_back(&mut self, base: &Self) {
        if self.is_none() {
            self.clone_from(base);
        }
    }
}

impl<T: Term + Clone> Field for Vec<T> {
    /// Takes a list, one word, or an object where an entry is a name and something of it.
    fn take(&mut self, value: Value) -> Result<(), String> {
        let mut push = |text: &str| -> Result<(), String> {
            self.push(T::read(text)?);
            Ok(())
        };
        match value {
            Value::Array(values) => values.into_iter().try_for_each(|value| push(&word(value)?)),
            Value::Object(entries) => {
                let between = T::BETWEEN.ok_or("it is a word or a list of words")?;
                entries.into_iter().try_for_each(|(name, value)| {
                    let name = word(Value::String(name))?;
                    push(&format!("{name}{between}{}", word(value)?))
                })
            }
            one @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                push(&word(one)?)
            }
        }
    }

    /// What both say holds; of two that say the same thing differently the last one counts.
    fn fall_back(&mut self, base: &Self) {
        self.splice(0..0, base.iter().cloned());
    }
}

impl Field for Option<bool> {
    fn take(&mut self, value: Value) -> Result<(), String> {
        *self = Some(value.as_bool().ok_or("it is true or false")?);
        Ok(())
    }

    fn fall_back(&mut self, base: &Self) {
        *self = self.or(*base);
    }
}

impl Field for bool {
    fn take(&mut self, value: Value) -> Result<(), String> {
        *self = value.as_bool().ok_or("it is true or false")?;
        Ok(())
    }

    fn fall_back(&mut self, base: &Self) {
        *self |= base;
    }
}

/// Returns a JSON value as one would write it on the command line.
pub(super) fn word(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) if text.contains('\0') => Err("there is a NUL in it".to_owned()),
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => {
            Err("it is a word or a number".to_owned())
        }
    }
}

/// Says once which words there are, and what each of them fills.
macro_rules! words {
    ($name:ident: $($word:literal => $field:ident),* $(,)?) => {
        impl $name {
            #[cfg(test)]
            const WORDS: &[&str] = &[$($word),*];

            /// Takes one field of an object; hands the value back if there is no such field.
            ///
            /// # Errors
            ///
            /// What is wrong with the value.
            pub(super) fn take(&mut self, word: &str, value: Value) -> Result<Option<Value>, String> {
                match word {
                    $($word => Field::take(&mut self.$field, value)?,)*
                    _ => return Ok(Some(value)),
                }
                Ok(None)
            }

            fn fall_back_each(&mut self, base: &Self) {
                $(Field::fall_back(&mut self.$field, &base.$field);)*
            }
        }
    };
}

words! { StepOptions:
    "band" => band,
    "key" => key,
    "weight" => weight,
    "name" => name,
    "tag" => tag,
    "flow" => flow,
    "delay" => delay,
    "at" => at,
    "expire" => expire,
    "limit" => limit,
    "retries" => retries,
    "backoff" => backoff,
    "retry-on" => retry_on,
    "no-retry-on" => no_retry_on,
    "timeout" => timeout,
    "kill-signal" => kill_signal,
    "grace" => grace,
    "on-lost" => on_lost,
    "leave-group" => leave_group,
    "max-output" => max_output,
    "cwd" => cwd,
    "env" => env,
    "env-file" => env_file,
    "clean-env" => clean_env,
}

words! { Ties:
    "hold" => hold,
    "after" => after,
    "after-any" => after_any,
    "after-failed" => after_failed,
    "unique" => unique,
    "while" => scope,
}

impl Ties {
    /// Returns what the step waits for, with what has to become of it.
    pub(super) fn parents(&self) -> impl Iterator<Item = (Need, &String)> {
        [
            (Need::Success, &self.after),
            (Need::End, &self.after_any),
            (Need::Failure, &self.after_failed),
        ]
        .into_iter()
        .flat_map(|(need, words)| words.iter().map(move |word| (need, word)))
    }

    /// Returns whether other steps decide what becomes of it.
    pub(super) fn bind(&self) -> bool {
        self.unique.is_some() || self.parents().next().is_some()
    }
}

impl Said {
    /// Takes one field of an object.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn take(&mut self, word: &str, value: Value) -> Result<(), String> {
        match self.options.take(word, value)? {
            None => Ok(()),
            Some(value) => match self.ties.take(word, value)? {
                None => Ok(()),
                Some(_) => Err("there is no such field".to_owned()),
            },
        }
    }

    /// Fills what is not said here with what is said of all: a list holds the words of both, of
    /// everything else the nearer word counts.
    pub(super) fn fall_back(&mut self, base: &Self) {
        let due = (self.options.delay, self.options.at.clone(), self.ties.hold);
        self.options.fall_back_each(&base.options);
        self.ties.fall_back_each(&base.ties);
        // When it is due is one thing, in whichever of three words it is said.
        if due != (None, None, false) {
            (self.options.delay, self.options.at, self.ties.hold) = due;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct All {
        #[command(flatten)]
        said: Said,
    }

    /// An option that could not be written into a flow would be missed by whoever moves to one.
    #[test]
    fn every_option_is_a_field_of_the_same_name() {
        use clap::CommandFactory as _;
        let command = All::command();
        let longs: Vec<&str> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .filter(|long| *long != "help")
            .collect();
        let words = [StepOptions::WORDS, Ties::WORDS].concat();
        for long in &longs {
            assert!(words.contains(long), "{long}");
        }
        assert_eq!(longs.len(), words.len());
    }
}
