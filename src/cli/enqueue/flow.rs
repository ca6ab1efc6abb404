//! Flow files: named steps that wait for each other, put in as one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::make::Maker;
use super::object::{self, Fields};
use super::options::Said;
use super::spool::{name_of, whole};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Command, Dependency, FairnessKey, Need, NewStep, Parent};

/// No flow is larger.
const MOST_BYTES: usize = 64 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    defaults: toml::Table,
    #[serde(default)]
    step: Vec<Spanned<toml::Table>>,
}

/// A step of a flow as it stands in the file.
pub(super) struct Entry {
    /// Where, for errors.
    at: String,
    name: String,
    command: Command,
    said: Said,
    /// The names that it waits for.
    after: Vec<(Need, String)>,
}

/// Reads a flow file and makes its steps, in the order of the file.
///
/// # Errors
///
/// `Usage` for what cannot be meant, with its line: also for a name that there is not, and for steps
/// that wait for each other in a circle.
pub(super) fn read(path: &Path, usual: &Said, maker: &Maker<'_>) -> Result<Vec<NewStep>> {
    let name = name_of(path);
    let entries = entries(&whole(path, MOST_BYTES)?, &name, usual)?;
    steps(&entries, maker)
}

pub(super) fn entries(bytes: &[u8], name: &str, usual: &Said) -> Result<Vec<Entry>> {
    let line = |at: usize| 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = line(error.valid_up_to());
        usage(format!("line {at} of {name}: not UTF-8"))
    })?;
    let file: File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(1, |span| line(span.start));
        usage(format!("line {at} of {name}: {}", error.message()))
    })?;
    if file.step.is_empty() {
        return Err(usage(format!("{name} has no step"))
            .hint("a step is a [[step]] with a name and a command"));
    }
    let mut base = usual.clone();
    let (defaults, command) = object::read(fields(file.defaults))
        .map_err(|why| usage(format!("{name}: the defaults: {why}")))?;
    if command.is_some() || defaults.options.name.is_some() || defaults.ties.bind() {
        return Err(usage(format!(
            "{name}: command, name, after and unique belong to one step, not to the defaults"
        )));
    }
    base.fall_back(&defaults);
    // Names and commands are each step's own, whatever the command line says.
    base.options.name = None;
    let mut names = BTreeSet::new();
    let mut entries = Vec::new();
    for step in file.step {
        let at = format!("line {} of {name}", line(step.span().start));
        let entry = entry(&at, step.into_inner(), &base)?;
        if !names.insert(entry.name.clone()) {
            return Err(usage(format!(
                "{at}: the name {:?} comes twice",
                entry.name
            )));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry(at: &str, table: toml::Table, base: &Said) -> Result<Entry> {
    let wrong = |why: String| usage(format!("{at}: {why}"));
    let (mut said, command) = object::read(fields(table)).map_err(wrong)?;
    let name = said
        .options
        .name
        .clone()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| wrong("the step has no name".to_owned()))?;
    let command = command.ok_or_else(|| wrong(format!("{name:?} has no command")))?;
    let after = said
        .ties
        .parents()
        .map(|(need, name)| (need, name.clone()))
        .collect();
    said.ties.after.clear();
    said.ties.after_any.clear();
    said.ties.after_failed.clear();
    said.fall_back(base);
    Ok(Entry {
        at: at.to_owned(),
        name,
        command,
        said,
        after,
    })
}

pub(super) fn steps(entries: &[Entry], maker: &Maker<'_>) -> Result<Vec<NewStep>> {
    let places: BTreeMap<&str, usize> = entries
        .iter()
        .enumerate()
        .map(|(at, entry)| (entry.name.as_str(), at))
        .collect();
    let mut parents: Vec<Vec<(Need, usize)>> = Vec::new();
    for entry in entries {
        let mut found = Vec::new();
        for (need, name) in &entry.after {
            let at = places.get(name.as_str()).ok_or_else(|| {
                usage(format!(
                    "{}: {:?} waits for {name:?}, and there is no such step in the flow",
                    entry.at, entry.name
                ))
                .hint("steps that are stored already are named on the command line: --after a17")
            })?;
            found.push((*need, *at));
        }
        parents.push(found);
    }
    let order = order(&parents).map_err(|circle| {
        let names: Vec<&str> = circle.iter().map(|at| entries[*at].name.as_str()).collect();
        usage(format!(
            "steps of the flow wait for each other in a circle: {}",
            names.join(" → ")
        ))
        .hint("nothing was stored")
    })?;
    // Parents first, for their keys.
    let mut made: BTreeMap<usize, NewStep> = BTreeMap::new();
    for at in order {
        let entry = &entries[at];
        let first = parents[at].first().and_then(|(_, parent)| made.get(parent));
        let key: Option<FairnessKey> = first.map(|step| step.key.clone());
        let mut after: Vec<Dependency> = parents[at]
            .iter()
            .map(|(need, parent)| Dependency {
                parent: Parent::InBatch(*parent),
                need: *need,
            })
            .collect();
        let step = maker
            .stored_parents(&entry.said)
            .and_then(|(stored, stored_key)| {
                after.extend(stored);
                after.sort_unstable();
                after.dedup();
                maker.make_after(
                    &entry.said,
                    entry.command.clone(),
                    after,
                    key.or(stored_key),
                )
            })
            .map_err(|error| error.context(format!("{}: {:?}", entry.at, entry.name)))?;
        made.insert(at, step);
    }
    Ok(made.into_values().collect())
}

/// Returns an order in which every step comes after those that it waits for; of those that could
/// come next, the first of the file.
///
/// # Errors
///
/// A circle, from a step over those that it waits for back to itself.
fn order(parents: &[Vec<(Need, usize)>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut left: BTreeSet<usize> = (0..parents.len()).collect();
    let mut open: Vec<BTreeSet<usize>> = parents
        .iter()
        .map(|of| of.iter().map(|(_, parent)| *parent).collect())
        .collect();
    let mut children = vec![Vec::new(); parents.len()];
    for (child, of) in open.iter().enumerate() {
        of.iter().for_each(|parent| children[*parent].push(child));
    }
    let mut free: BTreeSet<usize> = left
        .iter()
        .copied()
        .filter(|at| open[*at].is_empty())
        .collect();
    let mut order = Vec::new();
    while let Some(at) = free.pop_first() {
        left.remove(&at);
        order.push(at);
        for child in &children[at] {
            open[*child].remove(&at);
            if open[*child].is_empty() {
                free.insert(*child);
            }
        }
    }
    let Some(mut at) = left.first().copied() else {
        return Ok(order);
    };
    // Whatever is left waits for something that is left: going from one to the next comes back.
    let mut path = Vec::new();
    while !path.contains(&at) {
        path.push(at);
        let next = open[at].iter().find(|parent| left.contains(parent));
        at = next.copied().unwrap_or(at);
    }
    let from = path.iter().position(|step| *step == at).unwrap_or(0);
    path.drain(..from);
    path.push(at);
    Err(path)
}

fn fields(table: toml::Table) -> Fields {
    Fields(
        table
            .into_iter()
            .map(|(name, value)| (name, json(value)))
            .collect(),
    )
}

/// Returns a value as JSON has it; a time is the text that it was written as.
fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(is_so) => is_so.into(),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(table) => table
            .into_iter()
            .map(|(name, value)| (name, json(value)))
            .collect(),
    }
}

fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(parents: &[&[usize]]) -> Result<Vec<usize>, Vec<usize>> {
        let parents: Vec<Vec<(Need, usize)>> = parents
            .iter()
            .map(|of| of.iter().map(|at| (Need::Success, *at)).collect())
            .collect();
        order(&parents)
    }

    #[test]
    fn parents_come_first_and_else_the_order_of_the_file() {
        assert_eq!(ordered(&[&[], &[], &[]]), Ok(vec![0, 1, 2]));
        assert_eq!(ordered(&[&[2], &[0], &[]]), Ok(vec![2, 0, 1]));
        assert_eq!(
            ordered(&[&[], &[0, 0], &[0], &[1, 2]]),
            Ok(vec![0, 1, 2, 3])
        );
    }

    #[test]
    fn a_circle_is_told_from_a_step_back_to_itself_without_what_leads_to_it() {
        assert_eq!(ordered(&[&[0]]), Err(vec![0, 0]));
        assert_eq!(ordered(&[&[1], &[0]]), Err(vec![0, 1, 0]));
        assert_eq!(ordered(&[&[1], &[2], &[3], &[1]]), Err(vec![1, 2, 3, 1]));
        assert_eq!(ordered(&[&[], &[0, 2], &[0, 1]]), Err(vec![1, 2, 1]));
    }
}
