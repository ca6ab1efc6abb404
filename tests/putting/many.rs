//! Many steps at once: lines, objects; all of them or none.

use serde_json::json;

use crate::common::{Ran, Sandbox};
use crate::kit::{log, refused};

#[test]
fn an_object_says_what_the_options_say() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["-k", "bob", "true"]);
    sandbox.fairq(["limit", "set", "gpu", "2"]).expect(0);
    let lines = [
        json!({"command": "echo $A; pwd", "env": {"A": 1, "B": "x=y"}, "cwd": "/"}),
        json!({"command": ["printf", "%s", "$A *"], "band": 7, "key": "eve", "weight": 2.5,
            "name": "n", "tags": ["s", "t"], "flow": "f", "hold": true}),
        json!({"command": "x", "retries": 2, "backoff": "1s,2", "retry_on": "1-3",
            "no-retry-on": 2, "timeout": 90, "kill_signal": "INT", "grace": "1s",
            "on_lost": "fail", "leave_group": true, "max_output": "1K",
            "limits": {"gpu": 2, "disk": 1}, "expire": "1h", "delay": "1h"}),
        json!({"command": "x", "after": ["a1"], "after_any": "a1", "unique": "u", "while": "kept"}),
        json!({"command": "x", "unique": "u", "while": "kept", "limit": ["gpu:2"]}),
    ];
    let mut input: String = lines.iter().map(|line| format!("{line}\r\n\n")).collect();
    input.push_str("  \n");
    let args = [
        "enqueue",
        "--from-ndjson",
        "-",
        "-b",
        "50",
        "-t",
        "all",
        "--json",
    ];
    let told = sandbox.fairq_with(args, input.as_bytes()).expect(0).json();
    assert_eq!(told["ids"], json!(["a2", "a3", "a4", "a5", "a5"]));
    assert_eq!(told["met"], json!(["a5"]));
    let step = sandbox.step("a3");
    for (field, value) in [
        ("argv", json!(["printf", "%s", "$A *"])),
        ("band", json!(7)),
        ("key", json!("eve")),
        ("weight", json!(2.5)),
        ("name", json!("n")),
        ("tags", json!(["all", "s", "t"])),
        ("flow", json!("f")),
        ("state", json!("held")),
    ] {
        assert_eq!(step[field], value, "{field}");
    }
    let policy = &sandbox.step("a4")["policy"];
    assert_eq!(policy["limits"], json!({"disk": 1, "gpu": 2}));
    assert_eq!(
        (&policy["retry_on"], &policy["no_retry_on"]),
        (&json!([1, 2, 3]), &json!([2]))
    );
    assert_eq!(sandbox.step("a4")["state"], "delayed");
    let tied = sandbox.step("a5");
    assert_eq!((&tied["key"], &tied["band"]), (&json!("bob"), &json!(50)));
    assert_eq!(tied["after"].as_array().unwrap().len(), 2);
    sandbox.fairq(["run", "--drain"]);
    assert_eq!(log(&sandbox, "a2"), "1\n/\n");
}

#[test]
fn one_wrong_line_is_named_and_nothing_is_stored() {
    let good = r#"{"command": "true"}"#;
    for (bad, said) in [
        (r#"{"command": "#, "column"),
        ("true", "an object"),
        (r#"["true"]"#, "an object"),
        (r#"{"name": "x"}"#, "there is no command"),
        (
            r#"{"command": "true", "colour": 1}"#,
            "colour: there is no such field",
        ),
        (
            r#"{"command": "true", "key": "a", "key": "b"}"#,
            "key: it comes twice",
        ),
        (
            r#"{"command": "true", "timeout": "0,5s"}"#,
            "timeout: \"0,5s\"",
        ),
        (r#"{"command": "true", "band": "nowhere"}"#, "nowhere"),
        (r#"{"command": "true", "cwd": "/not/there"}"#, "/not/there"),
        (r#"{"command": "true", "retry_on": 3}"#, "without --retries"),
        (
            r#"{"command": "true", "limit": "gpu:9"}"#,
            "the limit has 1 place",
        ),
        (
            r#"{"command": "true", "at": "yesterdayish"}"#,
            "is not a time",
        ),
        (
            r#"{"command": "true", "after": "soon"}"#,
            "\"soon\" is not a step id",
        ),
        ("{\"command\": \"a\\u0000b\"}", "command: there is a NUL"),
        (r#"{"command": "true"} {"command": "true"}"#, "trailing"),
    ] {
        // In the last place, and far from the first.
        let input = format!("{good}\n\n{good}\n{bad}\n");
        for from in ["-", "file"] {
            let place = if from == "-" {
                "line 4 of standard input"
            } else {
                "line 4 of file"
            };
            refused(&["--from-ndjson", from], &input, &[place, said]);
        }
    }
    refused(&["--from-ndjson", "-"], " \n\n", &["has no line"]);
    refused(
        &["--from", "-"],
        "true\n\0\n",
        &["line 2 of standard input has a NUL"],
    );
    let long = format!("true\n{}\n", "x".repeat(140_000));
    refused(
        &["--from", "-"],
        &long,
        &["line 2 of standard input is too large", "128"],
    );
}

#[test]
fn a_line_that_fails_after_the_store_is_there_leaves_it_as_it_was() {
    let sandbox = Sandbox::with_shards(3);
    sandbox.enqueue(["true"]);
    let mut input = String::new();
    for key in 0..200 {
        input.push_str(&format!("{{\"command\": \"true\", \"key\": \"k{key}\"}}\n"));
    }
    input.push_str("{\"command\": \"true\", \"after\": \"a77\"}\n");
    let ran = sandbox.fairq_with(["enqueue", "--from-ndjson", "-"], input.as_bytes());
    assert!(ran.expect(3).err.contains("line 201"));
    assert_eq!(sandbox.json(["status"])["counts"], json!({"ready": 1}));
}

#[test]
fn objects_of_many_keys_and_bands_go_where_they_belong() {
    let sandbox = Sandbox::with_shards(4);
    let line = |at: u32| {
        let (key, band) = (at % 7, at % 3);
        format!("{{\"command\":\"echo {at}\",\"key\":\"k{key}\",\"band\":{band}}}\n")
    };
    let input: String = (0..500).map(line).collect();
    let args = ["enqueue", "--from-ndjson", "-"];
    let ids = sandbox.fairq_with(args, input.as_bytes()).expect(0).text();
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids.len(), 500);
    for at in [0_usize, 1, 250, 499] {
        let step = sandbox.step(ids[at]);
        assert_eq!(step["argv"], json!([format!("echo {at}")]));
        assert_eq!(step["key"], format!("k{}", at % 7));
        assert_eq!(step["band"], at % 3);
    }
}

#[test]
fn lines_may_end_with_nul_and_hold_newlines() {
    let sandbox = Sandbox::with_shards(1);
    let args = ["enqueue", "--from", "-", "-0"];
    let ran = sandbox
        .fairq_with(args, b"echo a\necho b\0\0printf '\xff'")
        .expect(0);
    assert_eq!(ran.text(), "a1\na2\n");
    sandbox.drain(1).expect(0);
    assert_eq!(log(&sandbox, "a1"), "a\nb\n");
    assert_eq!(sandbox.fairq(["logs", "a2"]).out, b"\xff");
}

/// Whoever kept the lines in memory would need far more than this.
#[test]
fn more_lines_than_memory_holds_are_put_in() {
    let sandbox = Sandbox::with_shards(2);
    let script = "head -c 300000000 /dev/zero | tr '\\0' x | fold -w 3000 | sed 's/^/: /' | {
        ulimit -v 250000; \"$FAIRQ\" enqueue --from - | tail -n 1; }";
    let ran = Ran::of(sandbox.program("sh").args(["-c", script])).expect(0);
    assert_eq!(ran.err, "");
    assert_eq!(sandbox.count("ready"), 100_000);
}

#[test]
fn many_lines_may_be_tied_and_unique() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.enqueue(["-k", "p", "exit 1"]);
    let parent = sandbox.json(["status"])["steps"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let options = ["--after", &parent, "-q"];
    let args = [&["enqueue", "--from", "-"], &options[..]].concat();
    sandbox.fairq_with(args, b"echo 1\necho 2\n").expect(0);
    assert_eq!(sandbox.count("blocked"), 2);
    let lines = ["echo 1", "echo 2"].map(str::to_owned);
    let ids = sandbox.enqueue_lines(&["--unique", "u"], &lines);
    assert_eq!(ids[0], ids[1]);
}
