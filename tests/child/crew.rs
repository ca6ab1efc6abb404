//! Real processes under a whole engine, on a store in memory: when their time is over.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairq::ambient::{Clock, SystemClock};
use fairq::crew::shell::Shell;
use fairq::engine::{Engine, Manner, With};
use fairq::event::NoSink;
use fairq::model::{
    Backoff, Band, Due, Ending, FairnessKey, NewStep, Policy, RunnerId, Span, StepId, StepState,
    Weight,
};
use fairq::planner::Pick;
use fairq::refiller::Pace;
use fairq::store::memory::MemoryStore;
use fairq::store::placement::Placement;
use fairq::store::{Intake as _, Read as _};

use crate::support::*;

struct Yard {
    root: tempfile::TempDir,
    store: Arc<MemoryStore>,
    clock: Arc<dyn Clock>,
}

impl Yard {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["runner", "work"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        Self {
            root,
            store: Arc::new(MemoryStore::new(1, Placement::Spread)),
            clock: Arc::new(SystemClock::new()),
        }
    }

    fn work(&self, name: &str) -> PathBuf {
        self.root.path().join("work").join(name)
    }

    fn put(&self, line: &str, policy: Policy) -> StepId {
        let step = NewStep {
            command: sh(line),
            cwd: self.root.path().join("work"),
            env: env(&[("PATH", "/usr/bin:/bin")]),
            band: Band::DEFAULT,
            key: FairnessKey::default(),
            weight: Weight::ONE,
            name: None,
            tags: Vec::new(),
            flow: None,
            due: Due::Now,
            after: Vec::new(),
            unique: None,
            policy,
        };
        self.store.enqueue(&[step], self.clock.now()).unwrap()[0]
    }

    /// Runs all that is due or will be tried again, to its end.
    fn drain(&self) {
        let runner = self.root.path().join("runner");
        let shell = Arc::new(
            Shell::new(
                self.root.path().to_owned(),
                runner,
                INLINE_MAX,
                Arc::clone(&self.clock),
            )
            .unwrap(),
        );
        let with = With {
            store: Arc::clone(&self.store) as Arc<_>,
            executor: Arc::clone(&shell) as Arc<_>,
            runner: RunnerId::new(5),
            neighbours: None,
            clock: Arc::clone(&self.clock),
            sink: Arc::new(NoSink),
        };
        let manner = Manner {
            workers: 4,
            pick: Pick::Stride,
            seed: 1,
            pace: Pace {
                heartbeat: Duration::from_millis(100),
                min_gap: Duration::ZERO,
            },
            lease: Span::from_millis(60_000),
            keep: None,
        };
        let engine = Engine::start(with, manner).unwrap();
        until("all is done", || engine.is_drained().unwrap());
        engine.drain();
        assert!(engine.wait(Duration::from_secs(60)));
        assert_eq!(engine.finish(Duration::from_secs(60)), 0);
        shell.close();
    }

    fn endings(&self, id: StepId) -> Vec<Ending> {
        let attempts = self.store.attempts(id).unwrap();
        attempts.into_iter().map(|attempt| attempt.ending).collect()
    }
}

fn timed(timeout: u64, grace: u64) -> Policy {
    Policy {
        timeout: Some(Span::from_millis(timeout)),
        grace: Span::from_millis(grace),
        ..Policy::default()
    }
}

#[test]
fn a_step_whose_time_is_over_goes_with_all_that_belongs_to_it() {
    let yard = Yard::new();
    let steps = [
        // It goes when it is asked to.
        ("sh -c 'sleep 1000; :'; :", 3_600_000, false),
        // It has stopped, and goes on to end.
        ("kill -STOP $$; sleep 1000", 3_600_000, false),
        // It does not go before it is killed.
        ("trap '' TERM; while :; do sleep 0.05; done", 100, true),
        // It goes, and leaves one that does not.
        (
            "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & wait",
            100,
            true,
        ),
    ];
    let marked = |line: &str| format!("echo $$ >>pids; {line}");
    let ids = steps.map(|(line, grace, _)| yard.put(&marked(line), timed(1_000, grace)));
    yard.drain();
    for (id, (line, _, killed)) in ids.into_iter().zip(steps) {
        assert_eq!(yard.endings(id), [Ending::TimedOut { killed }], "{line}");
        let step = yard.store.get(id).unwrap().unwrap();
        assert_eq!(step.state, StepState::Failed);
    }
    let pids = fs::read_to_string(yard.work("pids")).unwrap();
    let groups: Vec<&str> = pids.lines().collect();
    assert_eq!(groups.len(), 4);
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((_, fields)) = stat.rsplit_once(") ") else {
            continue;
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        let lives = fields[0] != "Z" && groups.contains(&fields[2]);
        assert!(!lives, "{stat}");
    }
}

/// Never two tries of one step at once, however it resists.
#[test]
fn a_step_that_was_timed_out_is_tried_again_when_it_is_gone() {
    let yard = Yard::new();
    let short = Span::from_millis(1);
    let policy = Policy {
        retries: 2,
        backoff: Backoff {
            base: short,
            factor: 1.0,
            cap: short,
        },
        ..timed(600, 100)
    };
    let line = "for pid in $(cat pids 2>/dev/null); do \
            grep -qs ') [^ZX]' /proc/$pid/stat && echo $pid >>overlaps; done; echo $$ >>pids; \
        sh -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 0.01; done' & wait";
    let id = yard.put(line, policy);
    yard.drain();
    assert_eq!(yard.endings(id).len(), 3);
    assert!(
        yard.endings(id)
            .iter()
            .all(|ending| matches!(ending, Ending::TimedOut { killed: true })),
        "{:?}",
        yard.endings(id)
    );
    let overlaps = fs::read_to_string(yard.work("overlaps")).unwrap_or_default();
    assert_eq!(overlaps, "");
}

#[test]
fn a_limit_of_the_output_holds_while_a_step_runs() {
    let yard = Yard::new();
    let policy = Policy {
        max_output: Some(1_000),
        ..Policy::default()
    };
    // It goes on until somebody has cut its output off, which only its own file can tell.
    let line = "f=$(readlink /proc/$$/fd/1); last=0; \
        while s=$(stat -c %s $f); test $s -ge $last; do last=$s; echo 0123456789; done";
    let id = yard.put(line, policy);
    yard.drain();
    assert_eq!(yard.endings(id), [Ending::Exited { code: 0 }]);
}
