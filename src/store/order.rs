//! In which order a batch is put in whose steps wait for each other.

use std::collections::VecDeque;

use crate::error::{Error, ErrorKind, Result};
use crate::model::{NewStep, Parent};

/// Returns the places of the batch so that every parent comes before its children; without parents
/// in the batch, that is its own order.
///
/// # Errors
///
/// `Usage` if steps wait for each other in a circle, which it names by their places counted from 1,
/// or if one waits for a place that the batch does not have.
pub(super) fn parents_first(steps: &[NewStep]) -> Result<Vec<usize>> {
    let mut open = vec![0_usize; steps.len()];
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (at, parent) in edges(steps) {
        let Some(of) = children.get_mut(parent) else {
            return Err(Error::new(
                ErrorKind::Usage,
                format!(
                    "step {} of the batch waits for step {}, which the batch does not have",
                    at + 1,
                    parent + 1
                ),
            )
            .hint("nothing was stored"));
        };
        of.push(at);
        open[at] += 1;
    }
    let mut next: VecDeque<usize> = (0..steps.len()).filter(|at| open[*at] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(at) = next.pop_front() {
        order.push(at);
        for child in &children[at] {
            open[*child] -= 1;
            if open[*child] == 0 {
                next.push_back(*child);
            }
        }
    }
    if order.len() == steps.len() {
        return Ok(order);
    }
    Err(circle(steps, &open))
}

/// Returns who waits for whom within the batch: the child, then the parent.
fn edges(steps: &[NewStep]) -> impl Iterator<Item = (usize, usize)> {
    steps.iter().enumerate().flat_map(|(at, step)| {
        step.after
            .iter()
            .filter_map(move |dependency| match dependency.parent {
                Parent::InBatch(parent) => Some((at, parent)),
                Parent::Step(_) => None,
            })
    })
}

/// Names one of the circles that the steps with open parents hold.
fn circle(steps: &[NewStep], open: &[usize]) -> Error {
    let waits_for = |at: usize| {
        steps[at]
            .after
            .iter()
            .find_map(|dependency| match dependency.parent {
                Parent::InBatch(parent) if open[parent] > 0 => Some(parent),
                Parent::InBatch(_) | Parent::Step(_) => None,
            })
    };
    // Whoever is left has a parent that is left: walking from one to the next ends in a circle.
    let mut path: Vec<usize> = Vec::new();
    let mut at = open.iter().position(|open| *open > 0);
    while let Some(here) = at {
        if let Some(start) = path.iter().position(|known| *known == here) {
            path.drain(..start);
            path.push(here);
            break;
        }
        path.push(here);
        at = waits_for(here);
    }
    let names: Vec<String> = path.iter().map(|at| (at + 1).to_string()).collect();
    Error::new(
        ErrorKind::Usage,
        format!(
            "steps wait for each other in a circle: {}",
            names.join(" → ")
        ),
    )
    .hint("each waits for the one after the arrow; nothing was stored")
}
