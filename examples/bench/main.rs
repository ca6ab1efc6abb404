//! How fast fairq is, measured where anybody can measure it again:
//!
//! ```text
//! cargo run --release --example bench -- all                 everything, about ten minutes
//! cargo run --release --example bench -- spawn wake          some subjects
//! cargo run --release --example bench -- all --short         seconds: only to see that it works
//! cargo run --release --example bench -- all --save --write-page
//! cargo run --release --example bench -- spawn enqueue store --most 3000 --guard
//! ```
//!
//! Every comparison runs both sides in this one run, in turns, and what is judged are ratios wherever
//! the machine would decide otherwise. The program under test is this very file: called by the name
//! `fairq` it is fairq, so a stale binary can never be measured.

mod depth;
mod engine;
mod enqueue;
mod idle;
mod kit;
mod look;
mod noop;
mod one_commit;
mod plan;
mod proc;
mod report;
mod runner;
mod scale;
mod spawn;
mod store;
mod timed;
mod wake;
mod waste;

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use kit::{Any, Kit};
use report::Report;

/// Measures fairq.
#[derive(Debug, Parser)]
struct Options {
    /// What to measure
    #[arg(required = true)]
    subjects: Vec<Subject>,
    /// Small numbers, for seeing that everything works; the figures mean nothing
    #[arg(long)]
    short: bool,
    /// The most steps that any store is filled with
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    most: u64,
    /// Where stores are made
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Write the results to benches/results/DATE.json, or to FILE
    #[arg(long, value_name = "FILE")]
    #[expect(
        clippy::option_option,
        reason = "clap's way to say: an option whose value may be left out"
    )]
    save: Option<Option<PathBuf>>,
    /// Put the tables into docs/performance.md, or into FILE
    #[arg(long, value_name = "FILE")]
    #[expect(
        clippy::option_option,
        reason = "clap's way to say: an option whose value may be left out"
    )]
    write_page: Option<Option<PathBuf>>,
    /// Fail if a ratio is more than 2.5 times off its goal
    #[arg(long)]
    guard: bool,
}

/// What there is to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Real commands, beside a bare loop and xargs
    Spawn,
    /// Steps that do nothing, through the whole engine, and where their time goes
    Noop,
    /// Putting steps in: one, many, and one on top of a million
    Enqueue,
    /// Tally, fetch, claim and settle on small and large stores
    Store,
    /// One plan
    Plan,
    /// Throughput and memory with ten million steps queued
    Depth,
    /// From an enqueue in one process to the start in another
    Wake,
    /// What a runner costs that has nothing to do
    Idle,
    /// status and explain with a million steps
    Look,
    /// Hints that were thrown away, and claims that were lost
    Waste,
    /// Planning and fairness for 10^8 steps of 10,000 keys on 16 shards, which are only counted
    Scale,
    /// All of these
    All,
}

impl Subject {
    const EACH: [Self; 11] = [
        Self::Spawn,
        Self::Noop,
        Self::Enqueue,
        Self::Store,
        Self::Plan,
        Self::Depth,
        Self::Wake,
        Self::Idle,
        Self::Look,
        Self::Waste,
        Self::Scale,
    ];

    fn measure(self, kit: &Kit, report: &mut Report) -> Any<()> {
        match self {
            Self::Spawn => spawn::measure(kit, report),
            Self::Noop => noop::measure(kit, report),
            Self::Enqueue => enqueue::measure(kit, report),
            Self::Store => store::measure(kit, report),
            Self::Plan => plan::measure(kit, report),
            Self::Depth => depth::measure(kit, report),
            Self::Wake => wake::measure(kit, report),
            Self::Idle => idle::measure(kit, report),
            Self::Look => look::measure(kit, report),
            Self::Waste => waste::measure(kit, report),
            Self::Scale => scale::measure(kit, report),
            Self::All => Self::EACH
                .into_iter()
                .try_for_each(|each| each.measure(kit, report)),
        }
    }

    fn word(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn main() -> ExitCode {
    // Who starts a process chooses its name; ours says which program it is to be.
    let name = std::env::args_os().next().unwrap_or_default();
    match name.as_bytes() {
        kit::FAIRQ => fairq::cli::main(),
        kit::ONE_COMMIT => exit(one_commit::main()),
        kit::RUNNER => exit(runner::main()),
        _ => exit(measure(&Options::parse())),
    }
}

fn exit(done: Any<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Any<()> {
    let kit = Kit::new(&options.dir, options.short, options.most);
    let mut report = Report::new(&options.dir, options.short);
    for subject in &options.subjects {
        let each = if *subject == Subject::All {
            &Subject::EACH
        } else {
            std::slice::from_ref(subject)
        };
        for subject in each {
            writeln!(std::io::stderr(), "… {}", subject.word())?;
            report.begin(&subject.word());
            subject.measure(&kit, &mut report)?;
        }
    }
    report.end();
    std::io::stdout().write_all(report.text().as_bytes())?;
    if let Some(to) = &options.save {
        let to = report.save(to.as_deref())?;
        writeln!(std::io::stderr(), "saved as {}", to.display())?;
    }
    if let Some(page) = &options.write_page {
        report.write_page(page.as_deref())?;
    }
    let collapsed = report.collapsed();
    if options.guard && !collapsed.is_empty() {
        return Err(format!("far off: {}", collapsed.join("; ")).into());
    }
    Ok(())
}
