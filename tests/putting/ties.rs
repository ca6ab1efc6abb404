//! Steps that wait for others.

use crate::common::Sandbox;
use crate::kit::{log, refused, state};

#[test]
fn a_step_waits_for_what_it_was_told_to_wait_for() {
    let sandbox = Sandbox::with_shards(2);
    let [good, bad, gone] =
        ["true", "exit 3", "exit 4"].map(|line| sandbox.enqueue(["-k", line, line]).remove(0));
    for (option, parents, becomes) in [
        ("--after", good.clone(), "succeeded"),
        ("--after", bad.clone(), "cancelled"),
        ("--after", format!("{good},{bad}"), "cancelled"),
        ("--after-any", bad.clone(), "succeeded"),
        ("--after-any", format!("{good},{bad},{gone}"), "succeeded"),
        ("--after-failed", bad.clone(), "succeeded"),
        ("--after-failed", format!("{bad},{gone}"), "succeeded"),
        ("--after-failed", good.clone(), "cancelled"),
    ] {
        // Tied before their ends, and after them.
        let mut tied = sandbox.enqueue([option, &parents, "echo ran"]);
        assert_eq!(state(&sandbox, &tied[0]), "blocked", "{option} {parents}");
        let waits = Sandbox::step(&sandbox, &tied[0])["after"].clone();
        assert_eq!(waits.as_array().unwrap().len(), parents.split(',').count());
        tied.push(format!("{option} {parents} {becomes}"));
        std::fs::write(sandbox.work(&tied[0]), &tied[1]).unwrap();
    }
    sandbox.drain(2).expect(1);
    for entry in std::fs::read_dir(sandbox.work("")).unwrap() {
        let path = entry.unwrap().path();
        let id = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let [option, parents, becomes] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        assert_eq!(state(&sandbox, &id), becomes, "{text}");
        let late = sandbox.enqueue([option, parents, "echo ran"]).remove(0);
        sandbox.fairq(["run", "--drain"]);
        assert_eq!(state(&sandbox, &late), becomes, "late: {text}");
        let ran = if becomes == "succeeded" { "ran\n" } else { "" };
        assert_eq!(log(&sandbox, &late), ran, "{text}");
    }
}

#[test]
fn parents_are_named_by_ids_and_ranges_with_commas_or_again() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["--array", "1-6", "true"]);
    for (args, parents) in [
        (&["--after", "a1,a3-a5"][..], &["a1", "a3", "a4", "a5"][..]),
        (&["--after", "a1", "--after", "a2"], &["a1", "a2"]),
        (&["--after", "a2,a2", "--after-any", "a6"], &["a2", "a6"]),
        // Of a range, those that there are.
        (&["--after", "a5-a99"], &["a5", "a6"]),
    ] {
        let id = sandbox
            .enqueue([args, &["--hold", "true"]].concat())
            .remove(0);
        let step = sandbox.step(&id);
        let after = step["after"].as_array().unwrap();
        let told: Vec<&str> = after
            .iter()
            .map(|one| one["parent"].as_str().unwrap())
            .collect();
        assert_eq!(told[..parents.len()], *parents, "{args:?}");
    }
}

/// A word after the option that is no id is most likely the command.
#[test]
fn an_option_never_swallows_the_command() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let id = sandbox.enqueue(["--after", "a1", "sleep", "0"]).remove(0);
    assert_eq!(sandbox.step(&id)["argv"], serde_json::json!(["sleep", "0"]));
    for option in ["--after", "--after-any", "--after-failed"] {
        for command in [
            &["sleep", "1"][..],
            &["a1,", "true"],
            &["--", "true"],
            &["-x", "y"],
        ] {
            let args = [&["enqueue", option], command].concat();
            let ran = sandbox.fairq(&args).expect(2);
            assert!(ran.err.contains(option), "{args:?}: {}", ran.err);
            assert!(
                ran.err.contains("put -- before the command"),
                "{args:?}: {}",
                ran.err
            );
        }
    }
    assert_eq!(sandbox.count("ready") + sandbox.count("blocked"), 2);
}

/// A second id without a comma would be run as a program.
#[test]
fn an_id_is_no_command() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    for command in [&["a2", "true"][..], &["a2-a5", "true"], &["a2"]] {
        let args = [&["enqueue", "--after", "a1"], command].concat();
        let ran = sandbox.fairq(&args).expect(2);
        assert!(ran.err.contains("joined by commas"), "{}", ran.err);
    }
    // Without the option there is nothing that could be meant but a program.
    sandbox.enqueue(["a2", "true"]);
    assert_eq!(sandbox.count("ready"), 2);
}

#[test]
fn a_parent_that_is_not_there_is_no_such_step() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    for parent in ["a2", "z1", "a5-a9"] {
        let ran = sandbox
            .fairq(["enqueue", "--after", parent, "true"])
            .expect(3);
        assert!(ran.err.contains(parent), "{}", ran.err);
    }
    assert_eq!(sandbox.count("ready"), 1);
    let empty = Sandbox::new();
    empty.fairq(["enqueue", "--after", "a1", "true"]).expect(3);
    assert!(!empty.store().exists());
    refused(&["--after", "a9-a5", "true"], "", &["backwards"]);
}

#[test]
fn a_dependent_without_a_key_has_that_of_its_first_parent() {
    let sandbox = Sandbox::with_shards(2);
    let bob = sandbox.enqueue(["-k", "bob", "true"]).remove(0);
    let ann = sandbox.enqueue(["-k", "ann", "true"]).remove(0);
    let both = format!("{bob},{ann}");
    for (args, key) in [
        (&["--after", &both][..], "bob"),
        (&["--after-any", &ann, "--after", &bob], "bob"),
        (&["--after", &bob, "-k", "eve"], "eve"),
        (&[], "default"),
    ] {
        let id = sandbox.enqueue([args, &["true"]].concat()).remove(0);
        assert_eq!(sandbox.step(&id)["key"], key, "{args:?}");
    }
}

/// Not between two tries of its parent, and once.
#[test]
fn a_dependent_starts_after_the_last_try_of_its_parent() {
    let sandbox = Sandbox::with_shards(1);
    let parent = "echo try >>order; test $FAIRQ_ATTEMPT = 3";
    sandbox.enqueue(["--retries", "2", "--backoff", "1ms", parent]);
    sandbox.enqueue(["--after", "a1", "echo child >>order"]);
    sandbox.drain(2).expect(0);
    let order = crate::common::lines(&sandbox.work("order"));
    assert_eq!(order, ["try", "try", "try", "child"]);
}

#[test]
fn a_cancelled_parent_takes_its_dependents_along_and_a_removed_child_holds_up_nobody() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    for option in ["--after", "--after-any", "--after"] {
        sandbox.enqueue([option, "a1", "echo ran"]);
    }
    sandbox.fairq(["cancel", "a4"]).expect(0);
    sandbox.enqueue(["true"]);
    sandbox.enqueue(["--after", "a5", "echo ran"]);
    sandbox.enqueue(["--after", "a6", "echo ran"]);
    sandbox.fairq(["cancel", "a5"]).expect(0);
    sandbox.fairq(["run", "--drain"]);
    for (id, becomes) in [
        ("a2", "succeeded"),
        ("a3", "succeeded"),
        ("a4", "cancelled"),
        ("a6", "cancelled"),
        ("a7", "cancelled"),
    ] {
        assert_eq!(state(&sandbox, id), becomes, "{id}");
    }
    let why = &sandbox.step("a7")["ending"];
    assert_eq!(why["how"], "skipped", "{why}");
    assert!(why["reason"].as_str().unwrap().starts_with("a6 "), "{why}");
    sandbox.fairq(["wait", "a7"]).expect(125);
}
