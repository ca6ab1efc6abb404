//! In which order the steps of a batch come, where they wait for each other: for every backend.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::model::{NewStep, Parent};

/// Returns the places of the steps in an order in which parents come before their dependents.
///
/// Of two steps of one unique key the second will not be stored: who waits for it waits for the
/// first, and what it waits for itself is of no account.
///
/// # Errors
///
/// `Usage` where a step waits for one that is not in the batch, and where steps wait for each other
/// in a circle; people count from 1.
pub(super) fn parents_first(steps: &[NewStep]) -> Result<Vec<usize>> {
    let parents = parents(steps)?;
    let mut children = vec![Vec::new(); steps.len()];
    let mut open: Vec<usize> = parents.iter().map(Vec::len).collect();
    for (place, of) in parents.iter().enumerate() {
        of.iter().for_each(|parent| children[*parent].push(place));
    }
    let mut order: Vec<usize> = (0..steps.len()).filter(|place| open[*place] == 0).collect();
    let mut next = 0;
    while let Some(&parent) = order.get(next) {
        next += 1;
        for child in &children[parent] {
            open[*child] -= 1;
            if open[*child] == 0 {
                order.push(*child);
            }
        }
    }
    match open.iter().position(|count| *count > 0) {
        None => Ok(order),
        Some(stuck) => Err(circle(&parents, &open, stuck)),
    }
}

/// Returns for each place which others of the batch the step there waits for.
fn parents(steps: &[NewStep]) -> Result<Vec<Vec<usize>>> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let stands_for: Vec<usize> = steps
        .iter()
        .enumerate()
        .map(|(place, step)| match &step.unique {
            Some(unique) => *first.entry(&unique.key).or_insert(place),
            None => place,
        })
        .collect();
    let mut parents = vec![Vec::new(); steps.len()];
    for (place, step) in steps.iter().enumerate() {
        for dependency in &step.after {
            let Parent::InBatch(parent) = dependency.parent else {
                continue;
            };
            let Some(parent) = stands_for.get(parent) else {
                let (step, parent, count) = (place + 1, parent + 1, steps.len());
                let what = format!("step {step} waits for step {parent}, but there are {count}");
                return Err(Error::new(ErrorKind::Usage, what));
            };
            if stands_for[place] == place {
                parents[place].push(*parent);
            }
        }
    }
    Ok(parents)
}

/// Names a circle that is found from a step which waits for one.
fn circle(parents: &[Vec<usize>], open: &[usize], stuck: usize) -> Error {
    let mut path = vec![stuck];
    let start = loop {
        let last = path[path.len() - 1];
        let next = parents[last].iter().find(|parent| open[**parent] > 0);
        let next = *next.expect("a step that was not reached waits for another one like it");
        if let Some(start) = path.iter().position(|place| *place == next) {
            break start;
        }
        path.push(next);
    };
    let mut circle = path.split_off(start);
    let least = (0..circle.len()).min_by_key(|at| circle[*at]);
    circle.rotate_left(least.unwrap_or_default());
    circle.push(circle[0]);
    let places: Vec<String> = circle.iter().map(|place| (place + 1).to_string()).collect();
    let what = format!(
        "steps wait for each other in a circle: {}",
        places.join(" → ")
    );
    Error::new(ErrorKind::Usage, what)
}
