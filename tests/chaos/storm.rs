//! Everything at once: steps are put in, run, steered and looked at, while whoever does it is killed
//! with KILL. Then one last runner does the rest, and the books must balance.
//!
//! `FAIRQ_CHAOS_KILLS` says how many processes are killed, `FAIRQ_TEST_SEED` repeats the choices (not
//! the schedule, which is the machine's).

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairq::ambient::{Clock as _, SystemClock};
use nix::sys::signal::Signal;

use crate::audit;
use crate::chance::Chance;
use crate::common::{Ran, Sandbox, until};

/// How many processes are killed where nobody says otherwise.
const KILLS: u64 = 250;
/// How many runners there are at a time.
const RUNNERS: u64 = 3;
/// Where steps come from.
const ENQUEUERS: u64 = 2;
/// The keys of steps, and of pauses.
pub(crate) const KEYS: [&str; 5] = ["ann", "bob", "cat", "dan", "eve"];
/// A limit's name and the most places that it ever has.
pub(crate) const LIMITS: [(&str, u32); 2] = [("solo", 1), ("pair", 2)];

/// What every step does: it holds a lock of its own as long as it runs, and one of the places of its
/// limit, so that the kernel itself finds two of them at a time; and it writes down that it starts
/// and how it ends, a line in one write. `$1` is the limit, `$2` the number of its places, `$3` how
/// long it takes, `$4` the code that it ends with; with `flaky` for that, its first try fails.
const STEP: &str = r#"note() { printf '%s\n' "$1 $FAIRQ_ID $FAIRQ_ATTEMPT $2" >>journal; }
exec 9>>"locks/$FAIRQ_ID"
flock -n 9 || note overlap $$
if [ "$2" -gt 0 ]; then
    exec 8>>"locks/$1-1"
    if ! flock -n 8; then
        exec 8>>"locks/$1-2"
        if [ "$2" -lt 2 ] || ! flock -n 8; then note crowded "$1"; fi
    fi
fi
note start $$
echo "$FAIRQ_ID says so"
sleep "$3"
code=$4
if [ "$code" = flaky ]; then code=0; [ "$FAIRQ_ATTEMPT" -gt 1 ] || code=1; fi
note end "$code"
exit "$code"
"#;

/// What was asked for of a step whose id somebody was told.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The steps that it waits for, until they have succeeded.
    pub(crate) parents: Vec<String>,
    /// What its command ends with.
    pub(crate) code: &'static str,
    /// How often it is tried again.
    pub(crate) retries: usize,
}

/// What came of a call that put in steps of one key, and so on one shard.
#[derive(Debug)]
pub(crate) struct Call {
    /// The label that its steps carry.
    pub(crate) tag: String,
    /// How many there are, or are none.
    pub(crate) steps: usize,
}

/// What all actors together have seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// By id.
    pub(crate) told: BTreeMap<String, Asked>,
    /// The ids, oldest first.
    order: Vec<String>,
    /// What was to be stored whole or not at all.
    pub(crate) calls: Vec<Call>,
    /// Whom somebody wanted to be tried again.
    pub(crate) retried: BTreeSet<String>,
    /// Whom somebody wanted to end.
    pub(crate) cancelled: BTreeSet<String>,
}

struct Storm<'s> {
    sandbox: &'s Sandbox,
    seed: u64,
    seen: Mutex<Seen>,
    kills: AtomicU64,
    enough: u64,
}

impl Storm<'_> {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all actors act until enough processes were killed.
    fn rage(&self) {
        std::thread::scope(|scope| {
            let mut actors: Vec<Box<dyn FnOnce(Chance) + Send>> = Vec::new();
            for _ in 0..RUNNERS {
                actors.push(Box::new(|chance| self.run_runners(chance)));
            }
            for actor in 0..ENQUEUERS {
                actors.push(Box::new(move |chance| self.enqueue(actor, chance)));
            }
            actors.push(Box::new(|chance| self.steer(chance)));
            actors.push(Box::new(|chance| self.look(chance)));
            for (actor, act) in (0..).zip(actors) {
                let chance = Chance::of(self.seed, actor);
                scope.spawn(move || {
                    // One that fails must not leave the others waiting for kills that never come.
                    let done = catch_unwind(AssertUnwindSafe(|| act(chance)));
                    if let Err(panic) = done {
                        self.kills.store(u64::MAX / 2, Ordering::SeqCst);
                        resume_unwind(panic);
                    }
                });
            }
        });
    }

    fn is_over(&self) -> bool {
        self.kills.load(Ordering::SeqCst) >= self.enough
    }

    /// Returns a step that somebody was told of.
    fn any(&self, chance: &mut Chance) -> Option<String> {
        let seen = self.seen();
        let count = seen.order.len() as u64;
        // The youngest are those that something still becomes of.
        let among = if chance.one_in(4) {
            count
        } else {
            count.min(30)
        };
        let back = usize::try_from(1 + chance.below(among.max(1))).unwrap();
        let at = seen.order.len().checked_sub(back)?;
        Some(seen.order[at].clone())
    }

    /// Kills a process, in a moment, if it still runs then.
    fn strike(&self, child: &mut Child, after: Duration) {
        let clock = SystemClock::new();
        while clock.monotonic() < after && !self.is_over() {
            if child.try_wait().unwrap().is_some() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        if child.try_wait().unwrap().is_none() && !self.is_over() {
            child.kill().unwrap();
            self.kills.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Runs the binary; sometimes it is killed. One that is left alone must end with one of these
    /// codes.
    #[track_caller]
    fn call(&self, chance: &mut Chance, args: &[String], codes: &[i32]) -> Ran {
        let mut child = self
            .sandbox
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let doomed = chance.one_in(3);
        let after = Duration::from_micros(chance.below(40_000));
        if doomed {
            self.strike(&mut child, after);
        }
        let ran = Ran::from_output(child.wait_with_output().unwrap());
        let fine = codes.contains(&ran.code) || (doomed && ran.code == 137);
        assert!(fine, "{args:?} ended with {}\n{}", ran.code, ran.err);
        assert!(!ran.err.contains("panicked"), "{args:?}\n{}", ran.err);
        ran
    }

    /// Runs runners, one after the other, none of which lives long.
    fn run_runners(&self, mut chance: Chance) {
        while !self.is_over() {
            let workers = (1 + chance.below(3)).to_string();
            let runner = self
                .sandbox
                .runner_unseen(&["--workers", &workers, "--quiet"]);
            self.pass(Duration::from_millis(60 + chance.below(1_200)));
            if chance.one_in(4) {
                runner.signal(Signal::SIGTERM);
                self.pass(Duration::from_millis(chance.below(100)));
            }
            runner.signal(Signal::SIGKILL);
            let (code, said) = runner.end();
            // One that was told to stop before it could listen is ended by that.
            assert!(
                [0, 137, 143].contains(&code),
                "a runner ended with {code}: {said}"
            );
            assert!(!said.contains("panicked"), "{said}");
            if code == 137 {
                self.kills.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Lets something go on for so long, or until it is over.
    fn pass(&self, time: Duration) {
        let clock = SystemClock::new();
        while clock.monotonic() < time && !self.is_over() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Puts in steps, one or many at a time.
    fn enqueue(&self, actor: u64, mut chance: Chance) {
        let most = 40 + self.enough * 4;
        for number in 0.. {
            if self.is_over() {
                return;
            }
            if self.seen().told.len() as u64 > most {
                std::thread::park_timeout(Duration::from_millis(20));
                continue;
            }
            let tag = format!("call-{actor}-{number}");
            let code = chance.pick(&["0", "0", "0", "flaky", "3"]);
            let retries = usize::try_from(chance.below(3)).unwrap();
            let many = if chance.one_in(3) {
                2 + chance.below(12)
            } else {
                1
            };
            let (limit, places) = if chance.one_in(3) {
                chance.pick(&LIMITS)
            } else {
                ("none", 0)
            };
            let mut args: Vec<String> = ["enqueue", "-t", &tag, "--backoff", "1ms,1,1ms"]
                .map(str::to_owned)
                .into();
            let mut add =
                |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
            add("-k", chance.pick(&KEYS));
            add("-b", chance.pick(&["10", "100", "200"]));
            add("--retries", &retries.to_string());
            if places > 0 {
                add("--limit", limit);
            }
            if chance.one_in(8) {
                add("--delay", "100ms");
            }
            let mut parents = Vec::new();
            if chance.one_in(4) {
                parents.extend(self.any(&mut chance));
                for parent in &parents {
                    add("--after", parent);
                }
            }
            if many > 1 {
                add("--array", &format!("1-{many}"));
            }
            let takes = format!("0.0{}", chance.below(8));
            args.extend(["--", "sh", "step", limit].map(str::to_owned));
            args.extend([places.to_string(), takes, code.to_owned()]);
            let ran = self.call(&mut chance, &args, &[0]);
            let text = ran.text();
            let whole = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            let mut seen = self.seen();
            let mut told = 0;
            for id in whole {
                let asked = Asked {
                    parents: parents.clone(),
                    code,
                    retries,
                };
                let id = id.trim().to_owned();
                seen.order.push(id.clone());
                let twice = seen.told.insert(id.clone(), asked);
                assert!(twice.is_none(), "{id} was given twice");
                told += 1;
            }
            let many = usize::try_from(many).unwrap();
            assert!(ran.code != 0 || told == many, "{args:?}: {text}");
            seen.calls.push(Call { tag, steps: many });
        }
    }

    /// Steers steps, pauses keys, and takes that back.
    fn steer(&self, mut chance: Chance) {
        while !self.is_over() {
            let Some(id) = self.any(&mut chance) else {
                continue;
            };
            let key = chance.pick(&KEYS);
            let words: Vec<&str> = match chance.below(9) {
                0 => {
                    self.seen().cancelled.insert(id.clone());
                    vec!["cancel", "--no-wait", &id]
                }
                1 | 2 => {
                    self.seen().retried.insert(id.clone());
                    vec!["retry", &id]
                }
                3 => vec!["hold", &id],
                4 => vec!["release", "--all"],
                5 => vec!["edit", &id, "-b", "10", "-w", "3"],
                6 => vec!["pause", "-k", key],
                7 => vec!["resume", "-k", key],
                _ => vec!["limit", "set", "pair", chance.pick(&["1", "2"])],
            };
            let args: Vec<String> = words.into_iter().map(str::to_owned).collect();
            self.call(&mut chance, &args, &[0, 1, 3]);
        }
    }

    /// Looks, and is answered every time.
    fn look(&self, mut chance: Chance) {
        while !self.is_over() {
            let id = self.any(&mut chance).unwrap_or_else(|| "a1".to_owned());
            let words: Vec<&str> = match chance.below(6) {
                0 => vec!["status", "--json"],
                1 => vec!["status", "--limit", "0"],
                2 => vec!["logs", &id],
                3 => vec!["explain", &id],
                4 => vec!["inspect", "plan"],
                _ => vec!["show", &id, "--json"],
            };
            let args: Vec<String> = words.into_iter().map(str::to_owned).collect();
            // A step that was never told of need not be there; a runner that dies while it is asked
            // has no answer.
            let codes: &[i32] = match &*args[0] {
                "inspect" => &[0, 1, 75],
                _ if id == "a1" => &[0, 3],
                _ => &[0],
            };
            self.call(&mut chance, &args, codes);
        }
    }
}

#[test]
fn what_was_acknowledged_survives_any_kill_and_runs_one_at_a_time() {
    let enough = std::env::var("FAIRQ_CHAOS_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let seed = Chance::seed();
    let sandbox = Sandbox::with_shards(3);
    std::fs::create_dir(sandbox.work("locks")).unwrap();
    std::fs::write(sandbox.work("step"), STEP).unwrap();
    sandbox.fairq(["limit", "set", "pair", "2"]).expect(0);
    let storm = Storm {
        sandbox: &sandbox,
        seed,
        seen: Mutex::default(),
        kills: AtomicU64::new(0),
        enough,
    };
    let all = catch_unwind(AssertUnwindSafe(|| storm.rage()));
    let said = |what: &str| println!("FAIRQ_TEST_SEED={seed} FAIRQ_CHAOS_KILLS={enough}: {what}");
    if let Err(panic) = all {
        said("an actor failed");
        resume_unwind(panic);
    }
    for words in [&["resume", "--all"][..], &["release", "--all"]] {
        sandbox.fairq(words);
    }
    let ran = sandbox.drain(3);
    let seen = storm.seen();
    let books = catch_unwind(AssertUnwindSafe(|| {
        assert!([0, 1].contains(&ran.code), "{}\n{}", ran.text(), ran.err);
        until("nobody is left", || sandbox.processes().is_empty());
        audit::balance(&sandbox, &seen)
    }));
    match books {
        Ok(account) => said(&account),
        Err(panic) => {
            said("the books do not balance");
            resume_unwind(panic);
        }
    }
}
