//! Short words for the things that the tests are about.

use fairq::cache::{CandidateCache, Offered, Taken, Waited};
use fairq::model::{Band, Candidate, FairnessKey, LocalId, ShardId, StepId, Turn, Weight};

pub(crate) fn shard(number: u8) -> ShardId {
    ShardId::new(number).unwrap()
}

pub(crate) fn band(number: u32) -> Band {
    Band::new(number).unwrap()
}

pub(crate) fn turn(steps: u8) -> Turn {
    (0..steps).fold(Turn::ZERO, |turn, _| turn.plus(Turn::stride(Weight::ONE)))
}

pub(crate) fn step(of: u8, number: i64) -> StepId {
    StepId::new(shard(of), LocalId::new(number))
}

pub(crate) fn candidate(of: u8, number: i64, at: u32, steps: u8) -> Candidate {
    Candidate {
        id: step(of, number),
        band: band(at),
        key: FairnessKey::default(),
        turn: turn(steps),
    }
}

/// Candidates of one shard with equal turns.
pub(crate) fn batch(of: u8, numbers: impl IntoIterator<Item = i64>) -> Vec<Candidate> {
    let numbers = numbers.into_iter();
    numbers
        .map(|number| candidate(of, number, 999, 0))
        .collect()
}

pub(crate) fn fill(
    cache: &CandidateCache,
    of: u8,
    numbers: impl IntoIterator<Item = i64>,
    at: u32,
) {
    cache.refill(shard(of), batch(of, numbers), band(at));
}

pub(crate) fn offer(cache: &CandidateCache, of: u8, number: i64, at: u32) -> Offered {
    cache.offer(candidate(of, number, at, 0))
}

/// Takes until nothing is left, and names what came.
pub(crate) fn drain(cache: &CandidateCache) -> Vec<String> {
    std::iter::from_fn(|| cache.try_pop_from(cache.peek_shard()?))
        .map(|taken| taken.candidate.id.to_string())
        .collect()
}

/// Closes the cache when the test is over, also when it has failed: threads that sleep on would
/// keep it from ending.
pub(crate) struct Closing<'cache>(pub(crate) &'cache CandidateCache);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The seed of a random test: from the environment, or one that differs from run to run.
pub(crate) fn seed() -> u64 {
    std::env::var("FAIRQ_TEST_SEED").map_or_else(
        |_| fairq::ambient::Dice::fresh().bits(),
        |text| text.parse().expect("FAIRQ_TEST_SEED is a number"),
    )
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Refill(u8, Vec<Candidate>, Band),
    Offer(Candidate),
    Pop,
    TryPop(u8),
    Peek,
    Wait,
    Len,
    Resize(usize),
    Release(StepId),
    BeginCycle(u8),
    TakenOf(u8),
    Close,
}

/// What a call returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Count(usize),
    Offered(Offered),
    Took(Option<Taken>),
    Shard(Option<ShardId>),
    Waited(Waited),
    Done,
}

/// Calls the cache.
pub(crate) fn call(cache: &CandidateCache, command: &Command) -> Answer {
    match command.clone() {
        Command::Refill(of, batch, floor) => Answer::Count(cache.refill(shard(of), batch, floor)),
        Command::Offer(candidate) => Answer::Offered(cache.offer(candidate)),
        Command::Pop => Answer::Took(cache.pop()),
        Command::TryPop(of) => Answer::Took(cache.try_pop_from(shard(of))),
        Command::Peek => Answer::Shard(cache.peek_shard()),
        Command::Wait => Answer::Waited(cache.wait_for_work()),
        Command::Len => Answer::Count(cache.len()),
        Command::TakenOf(of) => Answer::Count(cache.taken_of(shard(of))),
        Command::Resize(workers) => {
            cache.resize(workers);
            Answer::Done
        }
        Command::Release(id) => {
            cache.release(id);
            Answer::Done
        }
        Command::BeginCycle(of) => {
            cache.begin_cycle(shard(of));
            Answer::Done
        }
        Command::Close => {
            cache.close();
            Answer::Done
        }
    }
}
