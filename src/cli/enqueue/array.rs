//! Many steps of one command: arrays of numbers, and products of parameters.
//!
//! `{}` stands for the number and `{NAME}` for a parameter. In an exact argv, a name and a unique key
//! the value is put in as it is; in a shell line it is quoted where the shell would read it as more
//! than one word. What follows a `$` is the shell's: the values are variables as well.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use super::env::is_name;
use super::size::{self, MOST_WORD};
use super::terms::Term;
use crate::cli::render::{number, quote};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Command, NewStep};

/// The variable that holds a step's number in its array.
const INDEX: &str = "FAIRQ_ARRAY_INDEX";
/// No call makes more steps: beyond it one has mistyped a range.
const MOST: u64 = 10_000_000;

/// The numbers of an array: `0-99`, `1,5,9`, `0-10:2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Indices(Vec<Stretch>);

/// `count` numbers, from `first` on, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    first: u64,
    step: u64,
    count: u64,
}

/// A parameter and its values: `x=1,2,3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Param {
    name: String,
    /// At least one.
    values: Vec<String>,
}

/// All combinations of an array's numbers and the values of parameters.
#[derive(Clone, Debug)]
pub(super) struct Expansion {
    array: Option<Indices>,
    params: Vec<Param>,
    count: u64,
}

/// What is put in the place of what, and as which variable it is set.
struct Value {
    /// `{}` or `{NAME}`.
    place: String,
    variable: String,
    text: String,
}

impl Term for Indices {
    fn read(text: &str) -> Result<Self, String> {
        let number = |word: &str| {
            let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            plain
                .then(|| word.parse::<u64>().ok())
                .flatten()
                .ok_or_else(|| {
                    format!("{word:?} is not a number; arrays look like 0-99, 1,5,9 or 0-10:2")
                })
        };
        let stretch = |part: &str| {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step)?),
                None => (part, 1),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            if step == 0 {
                return Err(format!("the step of {part:?} cannot be 0"));
            }
            let far = last
                .checked_sub(first)
                .ok_or_else(|| format!("the range {part:?} runs backwards"))?;
            Ok(Stretch {
                first,
                step,
                count: (far / step).saturating_add(1),
            })
        };
        text.split(',')
            .map(stretch)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Indices {
    /// Returns how many there are; at most `u64::MAX`.
    fn count(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, stretch| sum.saturating_add(stretch.count))
    }

    /// Returns the number at this place, which is below [`Self::count`].
    fn at(&self, mut place: u64) -> u64 {
        for stretch in &self.0 {
            if place < stretch.count {
                return stretch.first + place * stretch.step;
            }
            place -= stretch.count;
        }
        0
    }
}

impl Term for Param {
    fn read(text: &str) -> Result<Self, String> {
        let (name, values) = text
            .split_once('=')
            .ok_or("it has no =; write --param NAME=1,2,3")?;
        if !is_name(name.as_bytes()) {
            return Err(format!("{name:?} is no name of a variable"));
        }
        if name.starts_with("FAIRQ_") {
            return Err(format!("{name:?} begins with FAIRQ_, which is ours"));
        }
        if values.contains('\0') {
            return Err("there is a NUL in it".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            values: values.split(',').map(str::to_owned).collect(),
        })
    }
}

impl Expansion {
    /// Combines an array and parameters; `None` if there is neither.
    ///
    /// # Errors
    ///
    /// `Usage` if a parameter comes twice, or the combinations are too many.
    pub(super) fn of(array: Option<&Indices>, params: &[Param]) -> Result<Option<Self>> {
        if array.is_none() && params.is_empty() {
            return Ok(None);
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = params.iter().find(|param| !names.insert(&param.name)) {
            return Err(
                usage(format!("the parameter {} comes twice", twice.name)).hint(format!(
                    "give all values at once: --param {}=1,2,3",
                    twice.name
                )),
            );
        }
        let count = params
            .iter()
            .map(|param| param.values.len() as u64)
            .chain(array.map(Indices::count))
            .fold(1_u64, u64::saturating_mul);
        if count > MOST {
            let most = number::count(MOST);
            return Err(usage(format!(
                "that would be {} steps; at most {most} are taken at once",
                number::count(count)
            )));
        }
        Ok(Some(Self {
            array: array.cloned(),
            params: params.to_vec(),
            count,
        }))
    }

    /// Returns how many steps there will be.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Makes the steps: the last parameter changes fastest, the array's number slowest.
    pub(super) fn steps<'e>(
        &'e self,
        like: &'e NewStep,
    ) -> impl Iterator<Item = Result<NewStep>> + 'e {
        (0..self.count).map(|at| self.step(like, at))
    }

    /// Makes the step at one place.
    ///
    /// # Errors
    ///
    /// `Usage` if it is too large with the values in it.
    pub(super) fn step(&self, like: &NewStep, at: u64) -> Result<NewStep> {
        let values = self.values(at);
        let whole = |text: &OsStr, quoted| {
            let filled = fill(text.as_bytes(), &values, quoted);
            size::too_large("the command", "in one word", filled.len(), MOST_WORD)?;
            Ok(OsString::from_vec(filled))
        };
        let plain = |text: &str, what: &str| {
            let filled = fill(text.as_bytes(), &values, false);
            size::too_large(what, "in all", filled.len(), MOST_WORD)?;
            Ok::<_, Error>(String::from_utf8_lossy(&filled).into_owned())
        };
        let command = match &like.command {
            Command::Shell(line) => Command::Shell(whole(line, true)?),
            Command::Argv(words) => {
                let words = words.iter().map(|word| whole(word, false));
                Command::Argv(words.collect::<Result<_>>()?)
            }
        };
        size::check(&command, "the command")?;
        let mut step = like.clone();
        step.command = command;
        if let Some(name) = &mut step.name {
            *name = plain(name, "the name")?;
        }
        if let Some(unique) = &mut step.unique {
            unique.key = plain(&unique.key, "the unique key")?;
        }
        let vars: BTreeMap<String, String> = values
            .into_iter()
            .map(|value| (value.variable, value.text))
            .collect();
        step.policy.vars = vars;
        Ok(step)
    }

    fn values(&self, mut at: u64) -> Vec<Value> {
        let mut values = Vec::with_capacity(self.params.len() + 1);
        for param in self.params.iter().rev() {
            let count = param.values.len() as u64;
            let place = usize::try_from(at % count).unwrap_or(0);
            at /= count;
            values.push(Value {
                place: format!("{{{}}}", param.name),
                variable: param.name.clone(),
                text: param.values[place].clone(),
            });
        }
        if let Some(array) = &self.array {
            values.push(Value {
                place: "{}".to_owned(),
                variable: INDEX.to_owned(),
                text: array.at(at).to_string(),
            });
        }
        values
    }
}

/// Puts the values in, each where its place is; what was put in is not looked at again. What has
/// become too large to be a word is not filled further: a long value in many places would fill all
/// memory first.
fn fill(text: &[u8], values: &[Value], quoted: bool) -> Vec<u8> {
    let mut filled = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first()
        && filled.len() < MOST_WORD
    {
        let found = values
            .iter()
            .filter(|_| filled.last() != Some(&b'$'))
            .find_map(|value| Some((value, rest.strip_prefix(value.place.as_bytes())?)));
        match found {
            Some((value, after)) => {
                if quoted {
                    filled.extend_from_slice(&quote::word(OsStr::new(&value.text)));
                } else {
                    filled.extend_from_slice(value.text.as_bytes());
                }
                rest = after;
            }
            None => {
                filled.push(*first);
                rest = after;
            }
        }
    }
    filled
}

fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(text: &str) -> Vec<u64> {
        let indices = Indices::read(text).unwrap();
        (0..indices.count()).map(|at| indices.at(at)).collect()
    }

    #[test]
    fn an_array_is_a_list_of_ranges_with_steps() {
        assert_eq!(indices("0-3"), [0, 1, 2, 3]);
        assert_eq!(indices("1,5,9"), [1, 5, 9]);
        assert_eq!(indices("0-10:2"), [0, 2, 4, 6, 8, 10]);
        assert_eq!(indices("0-9:4,7"), [0, 4, 8, 7]);
        for bad in [
            "", "a", "5-1", "1-", "-1", "1:0", "1-2:", "1,,2", "1 2", "0x4", "1-2-3",
        ] {
            assert!(Indices::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_mistyped_range_takes_no_memory() {
        let all = Indices::read("0-18446744073709551615,0-9").unwrap();
        assert_eq!(all.count(), u64::MAX);
        let refused = Expansion::of(Some(&all), &[]).unwrap_err();
        assert!(refused.what().contains("at most 10"), "{refused}");
    }

    fn values(pairs: &[(&str, &str)]) -> Vec<Value> {
        let value = |(place, text): &(&str, &str)| Value {
            place: (*place).to_owned(),
            variable: String::new(),
            text: (*text).to_owned(),
        };
        pairs.iter().map(value).collect()
    }

    #[test]
    fn values_are_put_in_once_and_what_is_the_shells_stays() {
        let values = values(&[("{}", "7"), ("{a}", "{b}"), ("{b}", "x y")]);
        for (text, plain, quoted) in [
            ("n{}.{}", "n7.7", "n7.7"),
            ("{a}{b}", "{b}x y", "'{b}''x y'"),
            ("${b} ${}", "${b} ${}", "${b} ${}"),
            ("{c} {{}} {", "{c} {7} {", "{c} {7} {"),
        ] {
            assert_eq!(fill(text.as_bytes(), &values, false), plain.as_bytes());
            assert_eq!(fill(text.as_bytes(), &values, true), quoted.as_bytes());
        }
    }
}
