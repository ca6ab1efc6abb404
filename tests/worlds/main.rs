//! The whole engine in simulated worlds where things go wrong, each drawn from one seed.
//!
//! # What is simulated
//!
//! One to six shards, one to four runners at a time, up to five workers each; keys with weights, bands,
//! limits, dependencies, delays, expiry, retries, unique keys, and people who steer all of that while it
//! runs. Planner, cache, refillers, crew, completer, foreman, courier and stores are the shipped ones:
//! [`fairq::engine::Works`] is what the engine's threads drive, and here one thread drives all of it
//! under a clock that it moves. What is not the product's own: the processes of the steps, the doorbells,
//! and who holds which lock. Most worlds rest in memory; one in fifty in SQLite, where each runner has
//! opened the store for itself, and a shard that is down breaks off what needs several, in the middle.
//!
//! # What goes wrong
//!
//! [`chance::Fault`] lists it: calls of every kind fail before or after they took effect, outcomes
//! arrive late, shards are slow or down, runners die between any two calls, stand still while others
//! take their steps over, or leave; the clock is set, and doorbells are not heard. Each world draws how
//! often each happens; a full run fails unless everything has happened.
//!
//! # What is checked
//!
//! * At each grant, outcome and taking back ([`book`]): fences rise by one, nothing is granted that runs,
//!   was cancelled, is held, paused, expired or lacks what it waits for; limits hold; nobody works at
//!   a step twice at once; nothing is taken from the living, and nothing late is recorded; the verdict
//!   is the one of the policy.
//! * At each look and take ([`watch`]): a report says what the shard holds; a shard that could not look is
//!   off the board and its candidates stay; a worker goes where the best band is, and takes nothing of
//!   a worse band than its shard could know of.
//! * Once nothing goes wrong ([`check`]): nobody is idle beside due work for long; everything ends; then
//!   nobody turns for nothing, every step stands where it should and its tries add up with what was
//!   granted, counters agree, caches are empty, and the doctor finds nothing.
//!
//! # Replaying
//!
//! A plain run makes the same worlds each time: one that fails was broken by the last change. Others
//! are made by `FAIRQ_WORLDS=N`, which says how many, and `FAIRQ_WORLD_FIRST=S`, from which seed on.
//! `FAIRQ_WORLD_SEED=S` replays one, and `FAIRQ_WORLD_LOUD=1` tells all of it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test that called them"
)]

mod book;
mod chance;
mod check;
mod fate;
mod frail;
mod home;
mod people;
mod runner;
mod sim;
mod spec;
mod trace;
mod trouble;
mod turn;
mod watch;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use chance::{Fault, Struck};
use sim::Sim;
use spec::Spec;

/// How many worlds a plain run makes.
const WORLDS: u64 = 4_000;
/// One of so many worlds rests in SQLite.
const ON_DISK: u64 = 50;

/// What a world came to.
struct Told {
    struck: Struck,
    hash: u64,
    events: u64,
    grants: u64,
}

/// Makes the world of a seed and lets it live to its end.
fn run(seed: u64, loud: bool) -> Told {
    let mut spec = Spec::draw(seed, is_on_disk(seed));
    let rates = std::mem::take(&mut spec.rates);
    let mut sim = Sim::new(&spec, rates, loud);
    let fate = std::sync::Arc::clone(&sim.fate);
    let lived = catch_unwind(AssertUnwindSafe(|| {
        sim.live_through();
        sim.drain();
        sim.is_clean();
    }));
    let inner = fate.lock();
    if lived.is_err() {
        let rerun = format!("FAIRQ_WORLD_SEED={seed} cargo test --test worlds");
        say(&format!(
            "{}\n{spec:?}\nreplay: {rerun}",
            inner.trace.last()
        ));
        panic!("the world of seed {seed} does not hold");
    }
    Told {
        struck: inner.struck.clone(),
        hash: inner.trace.hash(),
        events: inner.trace.lines,
        grants: inner.book.grants,
    }
}

const fn is_on_disk(seed: u64) -> bool {
    seed % ON_DISK == 7
}

#[expect(clippy::print_stderr, reason = "for the reader of a test")]
fn say(text: &str) {
    eprintln!("{text}");
}

fn number(name: &str) -> Option<u64> {
    let given = std::env::var(name).ok()?;
    Some(given.parse().unwrap())
}

#[test]
fn every_world_ends_clean() {
    if let Some(seed) = number("FAIRQ_WORLD_SEED") {
        run(seed, std::env::var_os("FAIRQ_WORLD_LOUD").is_some());
        return;
    }
    let worlds = number("FAIRQ_WORLDS").unwrap_or(WORLDS);
    let first = number("FAIRQ_WORLD_FIRST").unwrap_or(0);
    let next = AtomicU64::new(0);
    let all: Mutex<(Struck, u64, u64)> = Mutex::new((BTreeMap::new(), 0, 0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= worlds {
                        break;
                    }
                    let told = run(first.wrapping_add(at), false);
                    let mut all = all.lock().unwrap();
                    for (fault, count) in told.struck {
                        *all.0.entry(fault).or_default() += count;
                    }
                    all.1 += told.events;
                    all.2 += told.grants;
                }
            });
        }
    });
    let (struck, events, grants) = all.into_inner().unwrap();
    say(&format!(
        "{worlds} worlds from {first}, {events} lines, {grants} grants: {struck:?}"
    ));
    // Fewer need not have seen everything.
    if worlds >= WORLDS {
        for fault in Fault::ALL {
            assert!(struck.contains_key(&fault), "{fault:?} never happened");
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_world() {
    for seed in [1, 2, 3, 7] {
        let (once, again) = (run(seed, false), run(seed, false));
        assert_eq!(
            (once.hash, once.events),
            (again.hash, again.events),
            "seed {seed}"
        );
    }
}
