//! The walk-through of `docs/explain.md`, run as it is written; and every "why" that is printed on
//! the way, for every step and every pair of steps, held against what is really so.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[expect(dead_code, reason = "this test needs a part of the sandbox only")]
mod common;
#[path = "common/page.rs"]
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use common::{Sandbox, lines};
use page::{parts, run};
use serde_json::{Value, json};

/// The steps of the page, as they were put in: id, key, weight, band, and what they wait for.
const STEPS: [(&str, &str, u32, u32, &str); 9] = [
    ("a1", "judy", 1, 10, "ready"),
    ("b1", "alice", 2, 100, "ready"),
    ("b2", "alice", 2, 100, "ready"),
    ("b3", "alice", 2, 100, "ready"),
    ("b4", "carol", 1, 200, "ready"),
    ("c1", "erin", 1, 100, "held"),
    ("c2", "erin", 1, 100, "delayed"),
    ("d1", "bob", 1, 100, "ready"),
    ("d2", "bob", 1, 100, "ready"),
];

fn shard(id: &str) -> u64 {
    u64::from(id.as_bytes()[0] - b'a')
}

/// Works out, by walking the list, the reasons for which a step waits, each with its evidence.
fn truth(id: &str, busy_with: Option<&str>) -> BTreeMap<&'static str, Value> {
    let (_, key, _, band, state) = *STEPS.iter().find(|step| step.0 == id).unwrap();
    let due: Vec<_> = STEPS
        .iter()
        .filter(|step| step.4 == "ready" && Some(step.0) != busy_with)
        .collect();
    let mut reasons = BTreeMap::new();
    if busy_with.is_none() {
        reasons.insert("no_runner", json!({}));
    }
    if state != "ready" {
        reasons.insert(state, json!({}));
        return reasons;
    }
    let better: BTreeSet<u32> = due.iter().map(|it| it.3).filter(|it| *it < band).collect();
    let bands: Vec<Value> = better
        .into_iter()
        .map(|better| {
            let mut shards = BTreeMap::new();
            for step in due.iter().filter(|step| step.3 == better) {
                *shards.entry(shard(step.0)).or_insert(0) += 1;
            }
            let due: u64 = shards.values().sum();
            json!({ "band": better, "due": due, "shards": shards.into_iter().collect::<Vec<_>>() })
        })
        .collect();
    if !bands.is_empty() {
        reasons.insert("outranked", json!({ "bands": bands }));
    }
    let own: Vec<_> = due
        .iter()
        .filter(|it| (it.1, it.3) == (key, band))
        .collect();
    let ahead = own.iter().filter(|step| step.0 < id).count();
    if ahead > 0 {
        let evidence = json!({ "ahead": ahead, "of": own.len(), "shard": shard(id) });
        reasons.insert("behind_in_key", evidence);
    }
    let weights: BTreeMap<&str, u32> = due
        .iter()
        .filter(|step| step.3 == band)
        .map(|step| (step.1, step.2))
        .collect();
    if weights.len() > 1 {
        let all: u32 = weights.values().sum();
        let share = f64::from(weights[key]) / f64::from(all);
        let evidence = json!({ "keys": weights.len(), "share": share, "oldest_on": shard(id) });
        reasons.insert("keys_take_turns", evidence);
    }
    if busy_with.is_some() {
        reasons.insert("workers_busy", json!({ "workers": 1 }));
    }
    reasons
}

/// Compares what is said of every waiting step with the truth; and the text with the fields.
fn waiting_steps_are_explained(sandbox: &Sandbox, busy_with: Option<&str>) {
    for (id, ..) in STEPS.iter().filter(|step| Some(step.0) != busy_with) {
        let told = sandbox.json(["explain", id]);
        let reasons = told["reasons"].as_array().unwrap();
        let truth = truth(id, busy_with);
        let codes: BTreeSet<&str> = reasons
            .iter()
            .map(|reason| reason["code"].as_str().unwrap())
            .collect();
        assert_eq!(codes, truth.keys().copied().collect(), "{id}: {told:#}");
        assert_eq!(reasons.len(), codes.len(), "{id}: {told:#}");
        let text = sandbox.fairq(["why", id]).expect(0).text();
        for reason in reasons {
            let code = reason["code"].as_str().unwrap();
            for (field, value) in truth[code].as_object().unwrap() {
                assert_eq!(&reason["evidence"][field], value, "{id}: {reason:#}");
            }
            // How long is left differs between two looks.
            let sentence = reason["sentence"].as_str().unwrap();
            let said = sentence.split(", which is in").next().unwrap();
            assert!(text.contains(&format!("  {code}: {said}")), "{id}: {text}");
            if code == "workers_busy" {
                let running = &reason["evidence"]["running"];
                assert_eq!(running.as_array().unwrap().len(), 1);
                assert_eq!(running[0]["step"], busy_with.unwrap());
            }
            if code == "delayed" {
                assert_eq!(reason["evidence"]["due"], "2099-01-01T00:00:00.000Z");
            }
        }
    }
}

/// What the log of decisions holds, read without fairq: of each step the pushes that name it.
fn logged(sandbox: &Sandbox, id: &str) -> Vec<(u64, usize, f64)> {
    let dir = sandbox.work(".fairq/decisions");
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        for line in lines(&entry.unwrap().path()) {
            let record: Value = serde_json::from_str(&line).unwrap();
            let slots = record["slots"].as_array().unwrap();
            if let Some(place) = slots.iter().position(|slot| slot[2] == id) {
                let cycle = record["cycle"].as_u64().unwrap();
                found.push((cycle, place + 1, slots[place][1].as_f64().unwrap()));
            }
        }
    }
    found
}

fn steps_that_ran_are_explained(sandbox: &Sandbox) {
    for (id, ..) in STEPS.iter().filter(|step| step.4 == "ready") {
        let told = sandbox.json(["explain", id]);
        assert_eq!(told["reasons"], json!([]));
        let tries = told["tries"].as_array().unwrap();
        assert_eq!(tries.len(), 1, "{told:#}");
        let one = &tries[0];
        let shown = &sandbox.step(id)["attempts"][0];
        for field in ["claimed", "started", "ended", "runner", "worker", "fence"] {
            assert_eq!(one[field], shown[field], "{id} {field}");
        }
        assert_eq!(one["due_since"], shown["since"]);
        let planned = &one["planned"];
        let as_planned = (
            planned["cycle"].as_u64().unwrap(),
            usize::try_from(planned["place"].as_u64().unwrap()).unwrap(),
            planned["turn"].as_f64().unwrap(),
        );
        assert_eq!(Some(&as_planned), logged(sandbox, id).first(), "{id}");
        let ahead = planned["ahead"].as_array().unwrap().len();
        assert_eq!(ahead + 1, as_planned.1);
        assert_eq!(planned["shard"], shard(id));
        let times = ["due_since", "claimed", "started", "ended"].map(|it| one[it].as_str());
        assert!(times.is_sorted(), "{times:?}");
        assert!(planned["at"].as_str() <= one["claimed"].as_str(), "{one:#}");
    }
}

/// Of each two steps the order file tells which was first; with one worker there is no doubt.
fn pairs_are_explained(sandbox: &Sandbox) {
    let order = lines(&sandbox.work("order"));
    assert_eq!(order.len(), 7, "{order:?}");
    let place = |id: &str| order.iter().position(|ran| ran == id);
    for (a, b) in STEPS.iter().flat_map(|a| STEPS.iter().map(move |b| (a, b))) {
        if a.0 == b.0 {
            continue;
        }
        let told = sandbox.json(["explain", "--before", a.0, b.0]);
        let codes: Vec<&str> = told["grounds"]
            .as_array()
            .unwrap()
            .iter()
            .map(|ground| ground["code"].as_str().unwrap())
            .collect();
        assert!(!codes.is_empty(), "{told:#}");
        for code in ["not_known", "other_way_round", "runners"] {
            assert!(!codes.contains(&code), "{told:#}");
        }
        let (first, second) = match (place(a.0), place(b.0)) {
            (None, None) => {
                assert_eq!(told["first"], Value::Null);
                continue;
            }
            (Some(of_a), Some(of_b)) if of_b < of_a => (b, a),
            (None, Some(_)) => (b, a),
            (Some(_), _) => (a, b),
        };
        // Short steps may be claimed within one millisecond, and then nothing is claimed to be known.
        if told["a_tries"][0]["claimed"] != told["b_tries"][0]["claimed"] {
            assert_eq!(told["first"], first.0, "{told:#}");
        }
        assert_eq!(codes.contains(&"not_due"), second.4 != "ready", "{told:#}");
        let both = second.4 == "ready";
        assert_eq!(
            codes.contains(&"band"),
            both && first.3 < second.3,
            "{told:#}"
        );
        assert_eq!(
            codes.contains(&"same_key"),
            both && first.1 == second.1,
            "{told:#}"
        );
    }
}

#[test]
fn every_why_of_the_walk_through_is_true() {
    let parts = parts("docs/explain.md", "run");
    let [queue, waiting @ .., busy, _json, ran, before] = parts.as_slice() else {
        panic!("the page has {} parts", parts.len());
    };
    let sandbox = Sandbox::new();
    run(&sandbox, queue);
    waiting_steps_are_explained(&sandbox, None);
    for part in waiting {
        run(&sandbox, part);
    }
    // The runner must outlive this part's shell.
    run(&sandbox, &format!("{busy}{}", parts[parts.len() - 3]));
    waiting_steps_are_explained(&sandbox, Some("a1"));
    run(&sandbox, ran);
    common::until("the runner has recorded all and gone", || {
        sandbox.json(["status"])["runners"] == json!([])
    });
    run(&sandbox, before);
    steps_that_ran_are_explained(&sandbox);
    pairs_are_explained(&sandbox);
}

/// Steps that wait for what others do or hold, each with the reasons that are true of it while a1
/// runs and holds the only place of its limit.
#[test]
fn every_why_of_what_waits_for_others_is_true() {
    let parts = parts("docs/explain.md", "run others");
    let [busy, paused, ended] = parts.as_slice() else {
        panic!("the page has {} parts", parts.len());
    };
    let sandbox = Sandbox::new();
    run(&sandbox, busy);
    run(&sandbox, paused);
    let holders = json!({ "a1": 1 });
    let gpu = |before: Value| {
        json!({ "limit": "gpu", "places": 1, "set": false, "needs": 1, "taken": 1,
                "holders": holders, "waiting": 2, "before": before, "at_least": false })
    };
    let waits = json!([{ "parent": "a1", "need": "success", "met": false, "state": "running" }]);
    let cat = json!({ "band": null, "key": "cat" });
    for (id, truth) in [
        ("a2", vec![("limited", gpu(json!({ "10": 1 })))]),
        ("a3", vec![("limited", gpu(json!({})))]),
        ("a4", vec![("blocked", json!({ "parents": waits }))]),
        (
            "a5",
            vec![("paused", cat), ("workers_busy", json!({ "workers": 1 }))],
        ),
    ] {
        let told = sandbox.json(["explain", id]);
        let reasons = told["reasons"].as_array().unwrap();
        let codes: Vec<&str> = reasons
            .iter()
            .map(|it| it["code"].as_str().unwrap())
            .collect();
        let true_codes: Vec<&str> = truth.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, true_codes, "{id}: {told:#}");
        for (reason, (_, evidence)) in reasons.iter().zip(truth) {
            for (field, value) in evidence.as_object().unwrap() {
                assert_eq!(&reason["evidence"][field], value, "{id}: {reason:#}");
            }
        }
    }
    run(&sandbox, ended);
    let told = sandbox.json(["explain", "a4"]);
    let parents = &told["reasons"][0]["evidence"]["parents"];
    assert_eq!(parents[0]["state"], "cancelled", "{told:#}");
    assert_eq!(parents[0]["met"], false, "{told:#}");
    assert_eq!(told["tries"], json!([]), "{told:#}");
}

#[test]
fn a_shard_that_cannot_be_read_is_said_to_be_so() {
    let sandbox = Sandbox::with_shards(1);
    let ids = sandbox.enqueue(["true"]);
    fs::write(sandbox.store().join("shard-0.db"), "no database at all").unwrap();
    let told = sandbox.fairq(["explain", &ids[0], "--json"]);
    let codes: Vec<Value> = told.json()["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reason| reason["code"].clone())
        .collect();
    assert_eq!(codes, ["shard_unreadable", "no_runner"]);
    assert_ne!(told.code, 0);
}

#[test]
fn what_the_log_does_not_hold_any_more_is_not_known() {
    let sandbox = Sandbox::with_shards(1);
    let ids = [&["-k", "a", "true"], &["-k", "b", "true"]].map(|args| sandbox.enqueue(args));
    sandbox.drain(1).expect(0);
    fs::remove_dir_all(sandbox.store().join("decisions")).unwrap();
    let told = sandbox.json(["explain", &ids[0][0]]);
    assert_eq!(told["tries"][0]["planned"], Value::Null);
    let text = sandbox.fairq(["explain", &ids[0][0]]).expect(0).text();
    assert!(text.contains("planned   not known any more"), "{text}");
    let told = sandbox.json(["explain", "--before", &ids[0][0], &ids[1][0]]);
    assert_eq!(told["grounds"][0]["code"], "not_known", "{told:#}");
}

#[test]
fn one_step_is_explained_and_two_are_compared() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    sandbox.fairq(["explain", "a1", "a1"]).expect(2);
    sandbox.fairq(["explain", "--before", "a1"]).expect(2);
    sandbox.fairq(["explain", "a1-a2"]).expect(2);
    sandbox.fairq(["explain", "a2"]).expect(3);
    sandbox.fairq(["explain", "b1"]).expect(3);
}
