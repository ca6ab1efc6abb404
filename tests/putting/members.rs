//! Arrays and parameters.

use serde_json::json;

use crate::common::Sandbox;
use crate::kit::log;

#[test]
fn an_array_is_a_step_for_each_number() {
    let sandbox = Sandbox::with_shards(1);
    for (spec, numbers) in [
        ("0-3", &[0, 1, 2, 3][..]),
        ("1,5,9", &[1, 5, 9]),
        ("0-10:5", &[0, 5, 10]),
        ("7", &[7]),
    ] {
        let line = "echo {} $FAIRQ_ARRAY_INDEX x{}x";
        let ids = sandbox.enqueue(["--array", spec, "--name", "n{}", line]);
        sandbox.drain(2).expect(0);
        assert_eq!(ids.len(), numbers.len(), "{spec}");
        for (id, number) in ids.iter().zip(numbers) {
            assert_eq!(log(&sandbox, id), format!("{number} {number} x{number}x\n"));
            assert_eq!(sandbox.step(id)["name"], format!("n{number}"));
        }
    }
    // Without an array, braces are what they are.
    let id = sandbox.enqueue(["--", "echo", "{}", "{x}"]).remove(0);
    sandbox.drain(1).expect(0);
    assert_eq!(log(&sandbox, &id), "{} {x}\n");
}

#[test]
fn parameters_are_combined_and_the_last_changes_fastest() {
    let sandbox = Sandbox::with_shards(1);
    let args = ["--param", "a=1,2", "--param", "b=x,y", "--array", "8-9"];
    let ids = sandbox.enqueue(args.iter().chain(&["--", "echo", "{}{a}{b}{c}"]));
    sandbox.drain(2).expect(0);
    let told: Vec<String> = ids.iter().map(|id| log(&sandbox, id)).collect();
    let told: Vec<&str> = told.iter().map(|line| line.trim_end()).collect();
    let expected = [
        "81x{c}", "81y{c}", "82x{c}", "82y{c}", "91x{c}", "91y{c}", "92x{c}", "92y{c}",
    ];
    assert_eq!(told, expected);
    let step = sandbox.step(&ids[3]);
    let vars = json!({"FAIRQ_ARRAY_INDEX": "8", "a": "2", "b": "y"});
    assert_eq!(step["policy"]["vars"], vars);
    assert_eq!(step["argv"], json!(["echo", "82y{c}"]));
}

/// As GNU parallel has it: a value is one word to the shell, whatever is in it.
#[test]
fn a_value_is_one_word_in_a_shell_line_and_itself_in_an_argv() {
    let sandbox = Sandbox::with_shards(1);
    let value = "file=it's; a \"$HOME\" {file} *";
    let shell = sandbox.enqueue([
        "--param",
        value,
        "printf '[%s]' {file} a{file}z \"$file\" \"${file}\"",
    ]);
    let argv = sandbox.enqueue([
        "--param", value, "--", "printf", "[%s]", "{file}", "a{file}z",
    ]);
    sandbox.drain(1).expect(0);
    let text = value.strip_prefix("file=").unwrap();
    assert_eq!(
        log(&sandbox, &shell[0]),
        format!("[{text}][a{text}z][{text}][{text}]")
    );
    assert_eq!(log(&sandbox, &argv[0]), format!("[{text}][a{text}z]"));
}

#[test]
fn members_differ_in_little_and_share_their_environment() {
    let sandbox = Sandbox::with_shards(1);
    let mut command = sandbox.command(["enqueue", "-q", "--array", "1-2000", "true"]);
    command.env("LARGE", "x".repeat(100_000));
    crate::common::Ran::of(&mut command).expect(0);
    let size: u64 = std::fs::read_dir(sandbox.store())
        .unwrap()
        .filter_map(|entry| entry.unwrap().metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|meta| meta.len())
        .sum();
    assert!(size < 50_000_000, "{size} bytes");
    assert_eq!(sandbox.count("ready"), 2_000);
}

#[test]
fn members_may_be_unique_each() {
    let sandbox = Sandbox::with_shards(1);
    let put = |array| sandbox.enqueue(["--array", array, "--unique", "u{}", "true"]);
    assert_eq!(put("1-3"), ["a1", "a2", "a3"]);
    assert_eq!(put("2-4"), ["a2", "a3", "a4"]);
}
