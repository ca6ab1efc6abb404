//! `fairq stats` and `fairq events`, as a shell sees them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test that called them"
)]

#[expect(dead_code, reason = "other tests need the rest of it")]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;

use common::{Sandbox, until};
use fairq::event::{Event, Why};
use fairq::model::{Band, Ending, FairnessKey, RunnerId, ShardId, Span, StepState};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Returns the stream of events, each of which must be an object with the fields that all have.
fn events(sandbox: &Sandbox, args: &[&str]) -> Vec<Value> {
    let ran = sandbox.fairq(["events"].iter().chain(args)).expect(0);
    let parse = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
    let found: Vec<Value> = ran.text().lines().map(parse).collect();
    for event in &found {
        assert_eq!(event["schema"], 1, "{event}");
        for field in ["at", "level", "event"] {
            assert!(event[field].is_string(), "{event}");
        }
    }
    found
}

fn names(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

fn texts(events: &[Value], field: &str) -> BTreeSet<String> {
    events
        .iter()
        .filter_map(|event| Some(event[field].as_str()?.to_owned()))
        .collect()
}

fn near(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
}

/// Three tenants, one band, one worker: a plan of stride from the first to the last step.
fn three_tenants() -> Sandbox {
    let sandbox = Sandbox::with_shards(2);
    for (key, weight) in [("alice", "1"), ("bob", "2"), ("carol", "3")] {
        let lines: Vec<String> = (0..30).map(|_| "true".to_owned()).collect();
        sandbox.enqueue_lines(&["-k", key, "-w", weight], &lines);
    }
    sandbox
}

#[test]
fn stats_of_a_drain_tell_what_was_promised_and_what_came_of_it() {
    let sandbox = three_tenants();
    sandbox.enqueue(["-b", "5", "-k", "dave", "exit 3"]);
    sandbox.drain(1).expect(1);
    let stats = sandbox.json(["stats"]);
    assert_eq!(stats["schema"], 1);
    assert_eq!(stats["counts"]["succeeded"], 90);
    assert_eq!(stats["counts"]["failed"], 1);
    assert_eq!(stats["busiest_minute"]["steps"], 91);
    let groups = stats["groups"].as_array().unwrap();
    let named: Vec<(u64, &str, u64)> = groups
        .iter()
        .map(|group| {
            let succeeded = group["counts"]["succeeded"].as_u64().unwrap();
            let band = group["band"].as_u64().unwrap();
            (band, group["key"].as_str().unwrap_or("*"), succeeded)
        })
        .collect();
    let expected = [
        (5, "*", 0),
        (5, "dave", 0),
        (100, "*", 90),
        (100, "alice", 30),
        (100, "bob", 30),
        (100, "carol", 30),
    ];
    assert_eq!(named, expected);
    for group in groups {
        for of in ["wait_ms", "run_ms"] {
            let point = |name: &str| group[of][name].as_u64().unwrap();
            assert!(point("p50") <= point("p90") && point("p90") <= point("p99"));
            assert!(point("p99") <= point("max"));
        }
    }
    let fairness = stats["fairness"].as_array().unwrap();
    assert_eq!(fairness.len(), 4);
    let promised: f64 = fairness
        .iter()
        .map(|share| share["promised"].as_f64().unwrap())
        .sum();
    near(&Value::from(promised), 91.0);
    // Alone in its band, dave had it all.
    near(&fairness[0]["promised_share"], 1.0);
    near(&fairness[0]["chance"], 0.0);
    for share in &fairness[1..] {
        assert_eq!(share["taken"], 30, "{share}");
        let surplus = 30.0 - share["promised"].as_f64().unwrap();
        assert!(surplus.abs() < 4.0, "stride keeps within a few: {share}");
        let shares = ["observed_share", "promised_share", "difference"]
            .map(|field| share[field].as_f64().unwrap());
        near(&Value::from(shares[0] - shares[1]), shares[2]);
        assert!(share["chance"].as_f64().unwrap() > 0.0);
    }
    // Carol's steps were gone first, alice's last.
    let slots = |key: usize| fairness[key]["slots"].as_u64().unwrap();
    assert!(slots(3) < slots(2) && slots(2) < slots(1), "{stats}");
    assert_eq!(slots(1), 90);
    let longest = fairness[1]["longest_wait_slots"].as_u64().unwrap();
    assert!(
        (4..=9).contains(&longest),
        "one of six turns is alice's: {longest}"
    );

    let shown = sandbox.fairq(["stats"]).expect(0).text();
    for part in [
        "90 succeeded, 1 failed",
        "busiest",
        "PROMISED",
        "±",
        "100\talice\t",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn the_window_is_by_time_or_by_number() {
    let sandbox = three_tenants();
    let empty = sandbox.json(["stats"]);
    assert_eq!(empty["counts"]["succeeded"], 0);
    assert_eq!(empty["groups"].as_array().unwrap().len(), 0);
    // They have had no slot, and neither has anybody else.
    for share in empty["fairness"].as_array().unwrap() {
        assert_eq!(share["slots"], 0, "{share}");
    }
    sandbox.drain(2).expect(0);
    let succeeded = |args: &[&str]| {
        let stats = sandbox.json(["stats"].iter().chain(args));
        stats["counts"]["succeeded"].as_u64().unwrap()
    };
    assert_eq!(succeeded(&["--last", "7"]), 7);
    assert_eq!(succeeded(&["--last", "1000"]), 90);
    assert_eq!(succeeded(&["--since", "1d"]), 90);
    assert_eq!(succeeded(&["--since", "1970-01-01T00:00:00Z"]), 90);
    assert_eq!(succeeded(&["--since", "now"]), 0);
    sandbox.fairq(["stats", "--since", "tomorrow"]).expect(2);
    sandbox
        .fairq(["stats", "--since", "1h", "--last", "3"])
        .expect(2);
    sandbox
        .fairq(["stats", "--since", "9999-01-01 00:00"])
        .expect(2);
}

#[test]
fn what_still_waits_and_runs_is_seen() {
    let sandbox = Sandbox::with_shards(1);
    let gate = sandbox.work("gate");
    let wait = format!("until test -e {}; do sleep 0.05; done", gate.display());
    let running = sandbox.enqueue(["-k", "alice", &wait]).remove(0);
    sandbox.enqueue(["-k", "bob", "true"]);
    let runner = sandbox.runner(&["--workers", "1"]);
    until("the step runs", || {
        sandbox.step(&running)["state"] == "running"
    });
    let stats = sandbox.json(["stats"]);
    assert_eq!(stats["counts"]["running"], 1);
    let fairness = stats["fairness"].as_array().unwrap();
    assert_eq!(fairness[0]["taken"], 1);
    near(&fairness[0]["promised"], 0.5);
    assert_eq!(fairness[1]["taken"], 0);
    near(&fairness[1]["promised"], 0.5);
    assert_eq!(fairness[1]["longest_wait_slots"], 1);
    fs::write(gate, "").unwrap();
    runner.signal(Signal::SIGTERM);
    assert_eq!(runner.end().0, 0);
}

#[test]
fn a_steps_events_tell_its_life_in_order() {
    let sandbox = Sandbox::with_shards(1);
    let id = sandbox
        .enqueue(["-k", "alice", "-w", "2", "--name", "it", "exit 4"])
        .remove(0);
    sandbox.enqueue(["-k", "bob", "true"]);
    sandbox.drain(1).expect(1);
    let life = events(&sandbox, &["--id", &id]);
    assert_eq!(names(&life), ["enqueued", "claimed", "ended", "settled"]);
    assert_eq!(life[0]["key"], "alice");
    assert_eq!(life[0]["name"], "it");
    near(&life[0]["weight"], 2.0);
    assert_eq!(life[2]["how"], "exited");
    assert_eq!(life[2]["code"], 4);
    assert_eq!(life[3]["state"], "failed");
    let at: Vec<&str> = life
        .iter()
        .map(|event| event["at"].as_str().unwrap())
        .collect();
    assert!(at.is_sorted(), "{at:?}");

    let alices = events(&sandbox, &["--key", "alice"]);
    assert_eq!(alices, life);
    let all = events(&sandbox, &[]);
    let numbers: Vec<u64> = all
        .iter()
        .filter_map(|event| event["seq"].as_u64())
        .collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(
        names(&all)
            .iter()
            .filter(|name| **name == "runner_stopped")
            .count(),
        1
    );
    assert_eq!(events(&sandbox, &["--since", "now"]), [Value::Null; 0]);
    assert_eq!(events(&sandbox, &["--id", "a100-a200"]), [Value::Null; 0]);
}

/// A process that follows, and what it has printed.
struct Follower {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<Value>,
}

impl Follower {
    fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut child = sandbox
            .command(["events", "--follow"].iter().chain(args))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines() {
                if tell.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&[Value]) -> bool) {
        until(what, || {
            let more = self.lines.try_iter();
            self.seen
                .extend(more.map(|line| serde_json::from_str::<Value>(&line).unwrap()));
            is_so(&self.seen)
        });
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn settled(events: &[Value]) -> usize {
    names(events)
        .iter()
        .filter(|name| **name == "settled")
        .count()
}

#[test]
fn a_follower_sees_every_runner_and_every_step_once() {
    let sandbox = Sandbox::with_shards(2);
    let before = sandbox.enqueue(["true"]).remove(0);
    let mut follower = Follower::start(&sandbox, &["--since", "1h"]);
    follower.until("it sees what was there", |seen| names(seen) == ["enqueued"]);
    assert_eq!(follower.seen[0]["id"], before);
    for _ in 0..2 {
        let lines: Vec<String> = (0..20).map(|_| "true".to_owned()).collect();
        sandbox.enqueue_lines(&[], &lines);
        sandbox.drain(2).expect(0);
    }
    follower.until("both runners have stopped", |seen| {
        let stopped = names(seen)
            .iter()
            .filter(|name| **name == "runner_stopped")
            .count();
        stopped == 2 && settled(seen) == 41
    });
    let mut once = BTreeSet::new();
    for event in &follower.seen {
        let of = |field: &str| event[field].to_string();
        let told = (of("event"), of("id"), of("by"), of("seq"));
        assert!(once.insert(told), "twice: {event}");
    }
    assert_eq!(texts(&follower.seen, "by").len(), 2);
    assert_eq!(texts(&follower.seen, "id").len(), 41);
}

fn logs(sandbox: &Sandbox) -> Vec<PathBuf> {
    let dir = fs::read_dir(sandbox.store().join("events")).unwrap();
    dir.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_line_that_is_cut_off_is_skipped_until_it_is_whole() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    sandbox.drain(1).expect(0);
    let whole = events(&sandbox, &[]);
    let log = logs(&sandbox).remove(0);
    let append = |path: &Path, text: &str| {
        let mut file = fs::File::options().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let line = r#"{"schema":1,"at":"2000-01-01T00:00:00.000Z","level":"info","event":"late"}"#;
    let (first, rest) = line.split_at(30);
    append(&log, first);
    assert_eq!(events(&sandbox, &[]), whole);
    let mut follower = Follower::start(&sandbox, &["--since", "1999-01-01T00:00:00Z"]);
    follower.until("it has read the rest", |seen| seen.len() == whole.len());
    append(&log, rest);
    append(&log, "\n");
    follower.until("the line has come", |seen| {
        seen.last().is_some_and(|last| last["event"] == "late")
    });
    // What is no event at all is nobody's trouble.
    append(&log, "\u{0}\u{0}nonsense\n");
    assert_eq!(events(&sandbox, &[]), whole);
}

#[test]
fn a_log_that_cannot_be_kept_stops_no_runner() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    fs::write(sandbox.store().join("events"), "in the way").unwrap();
    let ran = sandbox.drain(1).expect(0);
    assert!(
        ran.err.contains("warning: cannot keep events"),
        "{}",
        ran.err
    );
    assert_eq!(sandbox.count("succeeded"), 1);
}

#[test]
fn without_a_store_there_is_nothing_to_tell() {
    let sandbox = Sandbox::new();
    for command in ["stats", "events"] {
        let ran = sandbox.fairq([command]).expect(3);
        assert!(ran.err.contains("there is no store"), "{}", ran.err);
        assert!(!sandbox.store().exists());
    }
}

/// Returns for each event of the page its level and the words that stand in code.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/events.md");
    let page = fs::read_to_string(path).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, level, fields] = cells[..] else {
            return None;
        };
        let fields = fields.split('`').skip(1).step_by(2).map(str::to_owned);
        Some((
            name.trim_matches('`').to_owned(),
            (level.to_owned(), fields.collect()),
        ))
    })
    .collect()
}

/// Returns one event of each kind, and one try for each way to end.
fn every_event() -> Vec<Event> {
    let id = "a1".parse().unwrap();
    let shard = ShardId::new(0).unwrap();
    let key: FairnessKey = "k".parse().unwrap();
    let runner = RunnerId::new(1);
    let text = || "text".to_owned();
    let ended = |ending| Event::Ended {
        id,
        key: key.clone(),
        fence: 1,
        ending,
        ran: Span::from_millis(1),
    };
    vec![
        Event::RunnerStarted { runner, workers: 1 },
        Event::Draining { running: 1 },
        Event::RunnerStopped { runner },
        Event::ShardWithdrawn {
            shard,
            error: text(),
        },
        Event::ShardReturned { shard },
        Event::Claimed {
            id,
            band: Band::DEFAULT,
            key: key.clone(),
            fence: 1,
            attempt: 1,
            waited: Span::from_millis(1),
        },
        Event::ClaimLost { id },
        Event::StartDelayed { id, reason: text() },
        ended(Ending::Exited { code: 1 }),
        ended(Ending::Signalled { signal: 1 }),
        ended(Ending::Unstarted { reason: text() }),
        ended(Ending::Interrupted),
        ended(Ending::Lost),
        ended(Ending::TimedOut { killed: true }),
        ended(Ending::Cancelled),
        ended(Ending::Skipped { reason: text() }),
        ended(Ending::Expired),
        Event::Asked {
            id,
            fence: 1,
            why: Why::TimeOver,
        },
        Event::Killed { id, fence: 1 },
        Event::Settled {
            id,
            state: StepState::Ready,
        },
        Event::Fenced { id },
        Event::SettleDelayed {
            shard,
            outcomes: 1,
            error: text(),
        },
        Event::TakenBack {
            id,
            runner,
            state: StepState::Ready,
        },
        Event::WorkerPanicked { id },
    ]
}

#[test]
fn the_page_names_every_event_and_field() {
    let page = documented();
    let mut undocumented: BTreeSet<String> = page.keys().cloned().collect();
    let mut check = |name: &str, level: &str, fields: &mut dyn Iterator<Item = String>| {
        let (told, words) = page
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not there"));
        assert_eq!(told, level, "{name}");
        for field in fields {
            assert!(words.contains(&field), "{name} does not name {field}");
        }
        undocumented.remove(name);
    };
    for event in every_event() {
        let value = serde_json::to_value(&event).unwrap();
        let fields = value
            .as_object()
            .unwrap()
            .keys()
            .filter(|field| *field != "event");
        let name = value["event"].as_str().unwrap();
        check(name, event.level().word(), &mut fields.cloned());
    }
    // What the store tells is seen through the binary; what was missed takes a full disk.
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let enqueued = &events(&sandbox, &[])[0];
    let common = ["schema", "at", "level", "event"];
    let fields = enqueued.as_object().unwrap().keys();
    let mut own = fields
        .filter(|field| !common.contains(&field.as_str()))
        .cloned();
    check("enqueued", "debug", &mut own);
    assert_eq!(undocumented, BTreeSet::from(["missed".to_owned()]));
}
