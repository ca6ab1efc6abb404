//! What `inspect` says, held against what is known to be true.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../common/mod.rs"]
mod common;
#[path = "../conformance/seeds.rs"]
mod seeds;

mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use common::{Sandbox, until};
use fairq::ambient::{Clock, SystemClock};
use fairq::model::ShardId;
use fairq::planner::{Decision, Merged, Standing, dice};
use fairq::store::sqlite::{Durability, Mode, SqliteStore};
use fairq::store::{Store as _, Supply as _};
use fairq::tally::TallyBoard;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A step that ends when the test says so.
const BLOCKER: &str = "until test -e go; do sleep 0.01; done";

/// Looks at all shards through the library.
fn board(sandbox: &Sandbox) -> TallyBoard {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = SqliteStore::open(&sandbox.store(), Mode::Visit, Durability::Normal, &clock);
    let store = store.unwrap().unwrap();
    let mut board = TallyBoard::default();
    for shard in ShardId::first(store.shard_count()) {
        board.report(shard, Arc::new(store.tally(shard).unwrap()), clock.now());
    }
    board
}

/// Returns the slots of a decision as text, in order.
fn slots_of(decision: &Decision) -> Vec<String> {
    let slots = decision.order.iter().zip(&decision.owners);
    slots
        .map(|(drawn, owner)| {
            let key = &decision.merged.keys()[drawn.key].key;
            format!("{key} {} {}", drawn.turn, owner.unwrap())
        })
        .collect()
}

/// Returns the slots of a printed plan in the same form.
fn slots_in(plan: &Value) -> Vec<String> {
    let slots = plan["slots"].as_array().unwrap().iter();
    slots
        .map(|slot| {
            let turn = slot["turn"].as_f64().unwrap();
            format!(
                "{} {turn:.3} {}",
                slot["key"].as_str().unwrap(),
                slot["shard"]
            )
        })
        .collect()
}

/// Three keys of different weights on all shards, and a worse band.
fn filled() -> Sandbox {
    let sandbox = Sandbox::new();
    let init = ["init", "--shards", "3", "--placement", "spread"];
    sandbox.fairq(init).expect(0);
    for (key, weight) in [("alice", "4"), ("bob", "1"), ("carol", "2.5")] {
        sandbox.enqueue_lines(&["-k", key, "-w", weight], &vec!["true".to_owned(); 9]);
    }
    sandbox.enqueue_lines(&["-b", "500"], &vec!["true".to_owned(); 4]);
    sandbox
}

#[test]
fn a_replayed_plan_is_the_same_to_the_byte_and_that_of_the_library() {
    let sandbox = filled();
    for seed in [0_u64, 7, u64::MAX] {
        let text = seed.to_string();
        let mut args = vec!["inspect", "plan", "--pick", "lottery", "--capacity", "12"];
        args.extend(["--seed", &text, "--repeat", "50"]);
        let first = sandbox.fairq(&args).expect(0).out;
        args.push("--json");
        let first_json = sandbox.fairq(&args).expect(0);
        let began = SystemClock::new().now();
        until("another millisecond", || SystemClock::new().now() > began);
        assert_eq!(first_json.out, sandbox.fairq(&args).expect(0).out);
        args.pop();
        assert_eq!(first, sandbox.fairq(&args).expect(0).out);

        let merged = Arc::new(Merged::of(&board(&sandbox)));
        let decision = Decision::by_lottery(merged, 12, seed, dice(seed));
        assert_eq!(slots_in(&first_json.json()), slots_of(&decision));
    }
    let other = |seed| {
        let args = [
            "inspect",
            "plan",
            "--pick",
            "lottery",
            "--capacity",
            "12",
            "--seed",
            seed,
        ];
        slots_in(&sandbox.json(args))
    };
    assert_ne!(other("1"), other("2"));
}

#[test]
fn a_plan_by_stride_is_that_of_the_library() {
    let sandbox = filled();
    let plan = sandbox.json(["inspect", "plan", "--capacity", "16"]);
    let merged = Arc::new(Merged::of(&board(&sandbox)));
    let decision = Decision::by_stride(merged, &Standing::default(), 16);
    assert_eq!(slots_in(&plan), slots_of(&decision));
    assert_eq!(
        (plan["pick"].as_str(), &plan["seed"]),
        (Some("stride"), &Value::Null)
    );
    let refused = sandbox.fairq(["inspect", "plan", "--pick", "stride", "--seed", "1"]);
    refused.expect(2);
}

#[test]
fn plans_run_forward_show_the_promised_shares() {
    let sandbox = filled();
    let plan = sandbox.json(["inspect", "plan", "--repeat", "750"]);
    assert_eq!(plan["repeat"], 750);
    let keys = plan["keys"].as_array().unwrap();
    let first: Vec<u64> = keys
        .iter()
        .map(|key| key["repeat_first"].as_u64().unwrap())
        .collect();
    assert_eq!(first, [400, 100, 250]);
    for key in keys {
        let [expected, seen] = ["expected_share", "repeat_share"].map(|part| key[part].as_f64());
        assert!((expected.unwrap() - seen.unwrap()).abs() < 1e-9, "{key}");
    }
}

/// What each shard's part is follows from where each step is and at which band.
#[test]
fn each_shard_is_told_why_it_takes_part_or_not() {
    let sandbox = Sandbox::with_shards(8);
    // Per shard: band and how many of it.
    let mut held: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut keys = (0..).map(|number| format!("key{number}"));
    // Two shards with work at the best band, a third with worse work; the others stay empty.
    for (shards, bands) in [(2, &["20", "300"][..]), (3, &["300"])] {
        while held.len() < shards {
            let key = keys.next().unwrap();
            for band in bands {
                let id = sandbox.enqueue(["-k", &key, "-b", band, "true"]).remove(0);
                let bands = held.entry(u64::from(id.as_bytes()[0] - b'a')).or_default();
                *bands.entry(band.parse().unwrap()).or_default() += 1;
            }
        }
    }
    let mut parts = BTreeSet::new();
    for capacity in ["1", "2", "64"] {
        let plan = sandbox.json(["inspect", "plan", "--capacity", capacity]);
        assert_eq!(plan["band"], 20);
        let mut setters = Vec::new();
        for shard in plan["shards"].as_array().unwrap() {
            let number = shard["shard"].as_u64().unwrap();
            let own = held.get(&number).and_then(|bands| bands.first_key_value());
            assert_eq!(
                shard["band"].as_u64(),
                own.map(|(band, _)| *band),
                "{shard}"
            );
            assert_eq!(
                shard["due"].as_u64(),
                own.map(|(_, due)| *due).or(Some(0)),
                "{shard}"
            );
            let slots = slots_in(&plan);
            let slots = slots
                .iter()
                .filter(|slot| slot.ends_with(&format!(" {number}")))
                .count();
            assert_eq!(shard["slots"], slots, "{shard}");
            let part = match own {
                None => "nothing_due",
                Some((20, _)) if slots == 0 => "out_slotted",
                Some((20, _)) => "serves",
                Some(_) => "worse_band",
            };
            assert_eq!(shard["part"], part, "{shard}");
            parts.insert(part);
            if own.is_some_and(|(band, _)| *band == 20) {
                setters.push(shard["shard"].clone());
            }
        }
        assert_eq!(plan["set_by"], Value::from(setters));
    }
    assert_eq!(parts.len(), 4, "{parts:?}");
}

#[test]
fn a_shard_that_cannot_be_read_is_named_with_its_error_and_the_others_plan() {
    let sandbox = filled();
    for end in ["", "-wal", "-shm"] {
        let file = sandbox.store().join(format!("shard-1.db{end}"));
        if end.is_empty() {
            fs::write(file, "no database at all").unwrap();
        } else {
            fs::remove_file(file).ok();
        }
    }
    let plan = sandbox.json(["inspect", "plan"]);
    let parts: Vec<&str> = plan["shards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shard| shard["part"].as_str().unwrap())
        .collect();
    assert_eq!(parts, ["serves", "cleared", "serves"]);
    assert!(plan["shards"][1]["error"].is_string());
    let shards = sandbox.json(["inspect", "shards"])["shards"].take();
    assert!(shards[1]["error"].is_string() && shards[0]["error"].is_null());
    assert_eq!(
        (&shards[0]["schema_version"], &shards[1]["schema_version"]),
        (&Value::from(1), &Value::Null)
    );
}

#[test]
fn without_a_runner_only_what_needs_one_says_so() {
    let sandbox = filled();
    for about in [&["cache"][..], &["pool"], &["runners"], &["plan", "--live"]] {
        let args = ["inspect"].iter().chain(about);
        let ran = sandbox.fairq(args).expect(3);
        assert!(
            ran.err.contains("no runner is alive"),
            "{about:?}: {}",
            ran.err
        );
    }
    let shards = sandbox.json(["inspect", "shards"]);
    assert_eq!(shards["runners"], Value::from(Vec::<Value>::new()));
    let ready: u64 = shards["shards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shard| shard["states"]["ready"].as_u64().unwrap())
        .sum();
    assert_eq!(ready, 31);
    let first = &shards["shards"][0];
    let file = PathBuf::from(first["file"].as_str().unwrap());
    assert_eq!(
        first["bytes"].as_u64(),
        Some(fs::metadata(file).unwrap().len())
    );
    assert!(first["wal_bytes"].is_u64());
}

/// Two steps run for two workers, six more wait; `look` is called when the runner has planned on
/// what is left.
fn with_a_busy_runner(look: impl FnOnce(&Sandbox, u32)) {
    let sandbox = Sandbox::with_shards(2);
    for key in ["alice", "bob"] {
        sandbox.enqueue_lines(&["-b", "7", "-k", key], &vec![BLOCKER.to_owned(); 4]);
    }
    let runner = sandbox.runner(&["--workers", "2"]);
    until("two steps run", || sandbox.count("running") == 2);
    until("the runner planned on what is left", || {
        let plan = sandbox.json(["inspect", "plan", "--live"])["runners"][0].take();
        let keys = list(&plan["keys"]).iter();
        keys.map(|key| key["count"].as_u64().unwrap()).sum::<u64>() == 6
    });
    look(&sandbox, runner.pid());
    fs::write(sandbox.work("go"), "").unwrap();
    until("all is done", || sandbox.count("succeeded") == 8);
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

#[test]
fn a_live_runner_tells_what_it_planned_last() {
    with_a_busy_runner(|sandbox, pid| {
        let plan = sandbox.json(["inspect", "plan", "--live"])["runners"][0].take();
        assert_eq!((&plan["pid"], &plan["band"]), (&pid.into(), &7.into()));
        assert!(plan["tally_age_ms"].is_u64() && plan["clock"].is_f64());
        for key in list(&plan["keys"]) {
            let share = key["expected_share"].as_f64().unwrap();
            assert!((share - 0.5).abs() < 1e-9, "{key}");
            let Some(turn) = key["turns"][0].as_f64() else {
                continue;
            };
            // A step of weight 1 is one further on.
            let pass = key["pass"].as_f64().unwrap();
            assert!((turn - pass - 1.0).abs() < 1e-6, "{key}");
            assert_eq!(key["first_slot_on"], key["oldest_on"], "{key}");
        }
        let shards = list(&plan["shards"]);
        assert!(shards.iter().all(|s| s["tallied_ms_ago"].is_u64()));
    });
}

#[test]
fn a_live_runner_tells_what_it_runs() {
    with_a_busy_runner(|sandbox, pid| {
        let seen = sandbox.json(["inspect", "runners"])["runners"][0].take();
        assert_eq!(seen["pid"], pid);
        assert_eq!(seen["crew"]["workers"], 2);
        let running = list(&seen["crew"]["running"]);
        assert_eq!(running.len(), 2);
        let text = sandbox.fairq(["inspect", "runners"]).expect(0).text();
        for step in running {
            let id = step["id"].as_str().unwrap();
            let known = sandbox.step(id);
            assert_eq!(
                (&step["key"], &step["band"]),
                (&known["key"], &known["band"])
            );
            assert_eq!(step["claimed"], known["claimed"]);
            assert!(step["running_ms"].is_u64());
            assert!(text.contains(&format!("\n{id}\t7\t")), "{text}");
        }
    });
}

#[test]
fn a_live_runner_tells_how_its_shards_fare() {
    with_a_busy_runner(|sandbox, _| {
        let seen = sandbox.json(["inspect", "shards"]);
        let shards = list(&seen["runners"][0]["shards"]);
        assert_eq!(shards.len(), 2);
        for shard in shards {
            let cycles = shard["cycles"].as_u64().unwrap();
            let ways = ["blind", "unfetched", "nothing", "pushed"];
            let ways: u64 = ways.iter().map(|way| shard[way].as_u64().unwrap()).sum();
            assert!(cycles > 0 && cycles == ways, "{shard}");
            assert_eq!(shard["phases"]["tally"]["count"], cycles, "{shard}");
            assert!(shard["phases"]["plan"]["p99"].is_u64(), "{shard}");
        }
        let writes = shards.iter().map(|s| s["writer"]["writes"].as_u64());
        assert!(writes.sum::<Option<u64>>() >= Some(2));
        let pools = sandbox.json(["inspect", "pool"])["runners"][0]["shards"].take();
        for pool in list(&pools) {
            assert!(pool["capacity"].as_u64() >= pool["open"].as_u64(), "{pool}");
            assert!(pool["open"].as_u64() > Some(0), "{pool}");
        }
    });
}

#[test]
fn a_live_runner_tells_what_it_holds_and_all_that_it_counted() {
    with_a_busy_runner(|sandbox, _| {
        let cache = sandbox.json(["inspect", "cache"])["runners"][0].take();
        assert_eq!(cache["cache"]["capacity"], 4);
        assert_eq!(cache["crew"]["claims_won"], 2);
        let counters = cache["cache"]["counters"].as_object().unwrap();
        assert_eq!(counters["pops"], 2);
        assert!(cache["waste"].is_f64());
        let text = sandbox.fairq(["inspect", "cache"]).expect(0).text();
        let (_, table) = text.split_once("SINCE THE START").unwrap();
        // A line for each, and three for claims.
        assert_eq!(table.lines().skip(1).count(), counters.len() + 3, "{text}");
    });
}

#[test]
fn several_runners_are_each_asked_and_one_that_hangs_keeps_nobody_from_the_others() {
    let sandbox = Sandbox::with_shards(1);
    let (hangs, answers) = (sandbox.runner(&[]), sandbox.runner(&[]));
    let asked: [&[&str]; 5] = [
        &["plan", "--live"],
        &["cache"],
        &["pool"],
        &["runners"],
        &["shards"],
    ];
    for about in asked {
        until("both answer", || {
            let args = ["inspect"].iter().chain(about).chain(&["--json"]);
            let ran = sandbox.fairq(args);
            ran.code == 0 && list(&ran.json()["runners"]).len() == 2
        });
    }
    hangs.signal(Signal::SIGSTOP);
    let ran = sandbox.fairq(["inspect", "pool", "--json"]).expect(0);
    let seen = ran.json();
    assert_eq!(list(&seen["runners"]).len(), 1);
    assert_eq!(seen["runners"][0]["pid"], answers.pid());
    assert!(ran.err.contains("does not answer"), "{}", ran.err);
    answers.kill_hard();
    // There is a runner, but it cannot be asked: another matter than that there is none.
    sandbox.fairq(["inspect", "pool"]).expect(75);
    hangs.kill_hard();
    sandbox.fairq(["inspect", "pool"]).expect(3);
}

/// Whoever holds the lock for writing keeps nobody from looking.
#[test]
fn looking_takes_no_lock_for_writing() {
    let sandbox = filled();
    let writers: Vec<rusqlite::Connection> = (0..3)
        .map(|shard| {
            let file = sandbox.store().join(format!("shard-{shard}.db"));
            let connection = rusqlite::Connection::open(file).unwrap();
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            connection
        })
        .collect();
    let plan = sandbox.json(["inspect", "plan", "--capacity", "8"]);
    assert_eq!(list(&plan["slots"]).len(), 8);
    let shards = sandbox.json(["inspect", "shards"]);
    assert!(
        list(&shards["shards"])
            .iter()
            .all(|shard| shard["error"].is_null())
    );
    drop(writers);
}

#[test]
fn a_runner_that_died_is_told_as_dead() {
    let sandbox = Sandbox::with_shards(1);
    let runner = sandbox.runner(&[]);
    let pid = runner.pid();
    until("it answers", || {
        let ran = sandbox.fairq(["inspect", "runners", "--json"]);
        ran.code == 0 && list(&ran.json()["dead"]).is_empty()
    });
    runner.kill_hard();
    let ran = sandbox.fairq(["inspect", "runners", "--json"]).expect(3);
    let seen = ran.json();
    assert_eq!(
        (&seen["dead"][0]["pid"], seen["runners"].as_array()),
        (&pid.into(), Some(&Vec::new()))
    );
    let ran = sandbox.fairq(["inspect", "runners"]).expect(3);
    assert!(ran.text().contains("dead"), "{}", ran.text());
    assert!(ran.err.contains("no runner is alive"), "{}", ran.err);
}
