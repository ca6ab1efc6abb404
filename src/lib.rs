//! fairq: a durable job queue for one machine, with strict bands and weighted fairness.
//!
//! The library exists for fairq's own binary, tests and benches; it promises nothing to others.
//!
//! # The house
//!
//! ```text
//! enqueue ─► store (shard i) ─► TALLY ─► planner ─► FETCH ─► cache ─► crew: wait ► permit ► take ► CLAIM ► run ► SETTLE
//!    ▲            │ bell ──────────┘ (wakes the shard's refiller)      └─ low water or progress: nudge a refiller
//!    └────────────┴────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! * [`store`] is where steps rest: five roles, two backends (SQLite, and memory as the reference).
//! * [`tally`] is what each shard says is due; [`planner`] decides whose turn it is; both are pure.
//! * [`cache`] holds hints for the crew; [`refiller`] drives look, report, plan, fetch, push for one shard.
//! * [`crew`] takes a hint, claims it, runs the command; [`completion`] records what became of it.
//! * [`decisions`] is what refills pushed lately, kept for whoever asks why.
//! * [`stats`] says of the tries that are recorded how many there were, how long they took, and whether
//!   each key got its part; it is pure, too.
//! * [`presence`] is how processes know of each other; [`engine`] builds all of it and stops it in order;
//!   its courier lets steps go that wait for others.
//! * [`cli`] is the skin: words in, words out.
//!
//! # Who may import whom
//!
//! | level | modules | may import |
//! |---|---|---|
//! | 0 | `model`, `ambient`, `sync` | nothing of ours (`ambient` the model) |
//! | 1 | `error`, `event`, `tally`, `cache`, `stats`, and `fuzz` for tests | level 0 |
//! | 2 | `planner`, `store`, `config`, `presence`, `decisions` | levels 0 and 1 |
//! | 3 | `refiller`, `crew`, `completion` | levels 0 to 2, never one another |
//! | 4 | `engine` | all of these, but no backend of the store |
//! | 5 | `cli` | everything |
//!
//! `tests/layering` holds the table to be true. rusqlite appears below `store/sqlite` only, clap and
//! `comfy_table` below `cli` only.
//!
//! # Three invariants
//!
//! * **A candidate is a hint.** The cache grants nothing; a stale or doubled hint costs a lost claim.
//! * **A claim is a fact.** Only the claim, a compare-and-set in the shard, gives a runner the step.
//! * **A fence decides.** Each claim raises the step's fence and every later write carries it; a write
//!   with an old one changes nothing.
//!
//! # Where a new thing goes
//!
//! A subcommand is a file in `cli/` and an arm in `cli/mod.rs`. A knob goes into `config/knob.rs`. A
//! state into `model/step.rs`, and the compiler shows every `match`. A scheduling rule into `planner/`,
//! with a property test. A query into the role that needs it, both backends and the conformance suite.
//! A log line is a variant in `event.rs`.

// What everything speaks of.
pub mod ambient;
pub mod error;
pub mod event;
#[cfg(test)]
mod fuzz;
pub mod model;
mod sync;

// Every setting, and where it came from.
pub mod config;

// 1. Where steps rest.
pub mod store;

// 2. What each shard says is due.
pub mod tally;

// 3. Whose turn it is.
pub mod planner;

// 4. Hints for the crew, and what fills them.
pub mod cache;
pub mod refiller;

// What was pushed, for whoever asks why.
pub mod decisions;

// 5. Running the commands.
pub mod crew;

// 6. What became of each step, and what all of them amount to.
pub mod completion;
pub mod stats;

// Who else is there; and all of it together.
pub mod engine;
pub mod presence;

// Words in, words out.
pub mod cli;
