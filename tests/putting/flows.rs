//! Flow files.

use std::fs;

use serde_json::json;

use crate::common::Sandbox;
use crate::kit::{log, refused, state};

const FLOW: &str = r#"
[defaults]
key = "ci"
tags = ["nightly"]
retries = 1
backoff = "1ms"

[[step]]
name = "publish"
command = "echo published >>done"
after = ["build", "test"]

[[step]]
name = "build"
command = ["sh", "-c", "echo built >>done"]
weight = 2

[[step]]
name = "test"
command = "echo tested >>done; exit 3"
after = ["build"]
key = "tests"
retries = 0

[[step]]
name = "alarm"
command = "echo alarm >>done"
after-failed = ["test"]

[[step]]
name = "sweep"
command = "echo swept >>done"
after_any = ["publish", "alarm"]
"#;

#[test]
fn a_flow_runs_in_the_order_that_its_steps_name() {
    let sandbox = Sandbox::with_shards(3);
    fs::write(sandbox.work("flow.toml"), FLOW).unwrap();
    let args = [
        "enqueue",
        "--file",
        "flow.toml",
        "-b",
        "7",
        "--flow",
        "f",
        "--json",
    ];
    let told = sandbox.fairq(args).expect(0).json();
    let ids: Vec<String> = told["ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    let names = ["publish", "build", "test", "alarm", "sweep"];
    for ((id, name), step) in ids.iter().zip(names).zip(told["steps"].as_array().unwrap()) {
        assert_eq!(*step, json!({"id": id, "name": name}));
        let step = sandbox.step(id);
        assert_eq!(step["name"], name);
        assert_eq!((&step["band"], &step["flow"]), (&json!(7), &json!("f")));
        assert_eq!(step["tags"], json!(["nightly"]));
        let key = if name == "test" { "tests" } else { "ci" };
        assert_eq!(step["key"], key, "{name}");
    }
    assert_eq!(sandbox.count("blocked"), 4);
    sandbox.drain(4).expect(1);
    let done = crate::common::lines(&sandbox.work("done"));
    assert_eq!(done, ["built", "tested", "alarm", "swept"]);
    assert_eq!(state(&sandbox, &ids[0]), "cancelled");
    sandbox.fairq(["wait", "--flow", "f"]).expect(1);
}

#[test]
fn a_flow_is_read_from_standard_input_and_prints_an_id_a_line() {
    let sandbox = Sandbox::with_shards(1);
    let args = ["enqueue", "--file", "-"];
    let ran = sandbox.fairq_with(args, FLOW.as_bytes()).expect(0);
    assert_eq!(ran.text(), "a1\na2\na3\na4\na5\n");
    assert_eq!(ran.err, "");
}

#[test]
fn the_command_line_overrides_defaults_and_not_what_a_step_says() {
    let sandbox = Sandbox::with_shards(1);
    let before = sandbox.enqueue(["-k", "other", "true"]).remove(0);
    fs::write(sandbox.work("flow.toml"), FLOW).unwrap();
    let ids = sandbox.enqueue(["--file", "flow.toml", "-k", "bob", "--after", &before]);
    let keys: Vec<String> = ids
        .iter()
        .map(|id| sandbox.step(id)["key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(keys, ["bob", "bob", "tests", "bob", "bob"]);
    // Each step waits for it besides what it names.
    for (id, parents) in ids.iter().zip([3, 1, 2, 2, 3]) {
        let after = sandbox.step(id)["after"].as_array().unwrap().len();
        assert_eq!(after, parents, "{id}");
    }
}

#[test]
fn a_key_comes_down_from_the_first_parent_whatever_the_order_of_the_file() {
    let sandbox = Sandbox::with_shards(2);
    let flow = r#"
[[step]]
name = "c"
command = "true"
after = ["b", "a"]
[[step]]
name = "b"
command = "true"
after-any = "a"
[[step]]
name = "a"
command = "true"
key = "eve"
"#;
    fs::write(sandbox.work("flow.toml"), flow).unwrap();
    for id in sandbox.enqueue(["--file", "flow.toml"]) {
        assert_eq!(sandbox.step(&id)["key"], "eve");
    }
    sandbox.drain(2).expect(0);
}

#[test]
fn a_circle_is_refused_by_the_names_of_its_steps() {
    let step = |name: &str, after: &str| {
        format!("[[step]]\nname = \"{name}\"\ncommand = \"true\"\nafter = [{after}]\n")
    };
    for (steps, circle) in [
        (vec![("a", "\"a\"")], "a → a"),
        (vec![("a", "\"b\""), ("b", "\"a\"")], "a → b → a"),
        (
            vec![
                ("x", ""),
                ("a", "\"b\""),
                ("b", "\"x\", \"c\""),
                ("c", "\"a\""),
            ],
            "a → b → c → a",
        ),
    ] {
        let flow: String = steps
            .iter()
            .map(|(name, after)| step(name, after))
            .collect();
        refused(&["--file", "-"], &flow, &["circle", circle]);
    }
}

#[test]
fn what_is_wrong_in_a_flow_is_told_with_its_line() {
    let good = "# a flow\n[[step]]\nname = \"a\"\ncommand = \"true\"\n";
    for (bad, said) in [
        (
            "[[step]]\nname = \"b\"\n",
            &["line 5", "\"b\" has no command"][..],
        ),
        ("[[step]]\ncommand = \"true\"\n", &["line 5", "no name"]),
        (
            "[[step]]\nname = \"\"\ncommand = \"true\"\n",
            &["line 5", "no name"],
        ),
        (
            "[[step]]\nname = \"a\"\ncommand = \"true\"\n",
            &["line 5", "\"a\" comes twice"],
        ),
        (
            "[[step]]\nname = \"b\"\ncommand = \"true\"\nafter = [\"c\"]\n",
            &["line 5", "\"b\" waits for \"c\"", "--after a17"],
        ),
        (
            "[[step]]\nname = \"b\"\ncommand = \"x\"\ncolour = 1\n",
            &["line 5", "colour: there is no such"],
        ),
        (
            "[[step]]\nname = \"b\"\ncommand = \"x\"\ntimeout = true\n",
            &["line 5", "timeout: it is a word"],
        ),
        (
            "[[step]]\nname = \"b\"\ncommand = \"x\"\nlimit = \"gpu:2\"\n",
            &["line 5", "\"b\"", "has 1 place"],
        ),
        ("[[steps]]\nname = \"b\"\n", &["unknown field `steps`"]),
        ("name = \n", &["line 5"]),
    ] {
        refused(&["--file", "-"], &format!("{good}{bad}"), said);
    }
    refused(&["--file", "-"], "", &["has no step"]);
    refused(
        &["--file", "-"],
        "[defaults]\nafter = [\"a\"]\n[[step]]\nname = \"a\"\ncommand = \"x\"\n",
        &["not to the defaults"],
    );
    let sandbox = Sandbox::new();
    sandbox
        .fairq(["enqueue", "--file", "not-there.toml"])
        .expect(1);
}

#[test]
fn times_stand_in_a_flow_as_toml_has_them() {
    let sandbox = Sandbox::with_shards(1);
    let flow = "[[step]]\nname = \"a\"\ncommand = \"true\"\nat = 2027-03-14T16:00:00+01:00\n";
    let args = ["enqueue", "--file", "-"];
    sandbox.fairq_with(args, flow.as_bytes()).expect(0);
    assert_eq!(sandbox.step("a1")["due"], "2027-03-14T15:00:00.000Z");
    assert_eq!(log(&sandbox, "a1"), "");
}
