//! What users chose acts on nothing: no terminal, no shell, no path; and what is secret is not told.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::common::{Ran, Sandbox};

/// Names that mean something to somebody.
const EVIL: [&str; 9] = [
    "\u{1b}[2J\u{1b}]0;title\u{7}",
    "line\nid\tstate\r\u{8}",
    "\u{9b}31m\u{85}\u{202e}evil\u{2066}\u{200b}\u{2028}",
    "%s%n%d $(touch pwned) `touch pwned` ${HOME} ;touch pwned",
    "-rf",
    "--all",
    "../../../../pwned",
    "'\"\\ * ? ~ & |",
    "a1",
];

/// Every command that shows steps or speaks of them.
const SHOWING: [&[&str]; 14] = [
    &["status"],
    &["status", "--columns", "id,name,key,tags,flow,command"],
    &["show", "a1"],
    &["show", "a2"],
    &["explain", "a1"],
    &["explain", "a2"],
    &["inspect", "plan"],
    &["inspect", "shards"],
    &["stats"],
    &["events"],
    &["doctor"],
    &["wait", "a1"],
    &["release", "a1"],
    &["hold", "a2"],
];

#[track_caller]
fn acts_on_nothing(ran: &Ran, what: &str) {
    for text in [&ran.text(), &ran.err] {
        let acts = |letter: char| {
            let moves = letter.is_control() && !['\n', '\t'].contains(&letter);
            moves
                || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!text.contains(acts), "{what}: {text:?}");
    }
    assert_ne!(ran.code, 70, "{what}: {}", ran.err);
}

/// All files and folders, by their paths, but for the store's own.
fn around(sandbox: &Sandbox) -> Vec<PathBuf> {
    fn gather(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.clone());
            if path.is_dir() && !path.ends_with("data/fairq") {
                gather(&path, found);
            }
        }
    }
    let mut found = Vec::new();
    let root = sandbox.work("..").canonicalize().unwrap();
    gather(&root, &mut found);
    found.sort();
    found
}

#[test]
fn names_act_on_no_terminal_and_no_path_and_are_exact_in_json() {
    for evil in EVIL {
        let sandbox = Sandbox::with_shards(1);
        // As a folder: what of it can be the name of one.
        let cwd = sandbox.work(&evil.replace('/', "_"));
        fs::create_dir(&cwd).unwrap();
        let before = around(&sandbox);
        let [key, name, tag, flow, unique] =
            ["key", "name", "tag", "flow", "unique"].map(|option| format!("--{option}={evil}"));
        let options = [
            key,
            name,
            tag,
            flow,
            unique,
            format!("--cwd={}", cwd.display()),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        // Beyond what is kept in the table: a file of its own.
        let line = "printf %s\\\\n \"$1\"; head -c 70000 /dev/zero";
        let command = ["--", "sh", "-c", line, "sh", evil];
        sandbox.enqueue([options.as_slice(), &command].concat());
        sandbox.enqueue([&options[..4], &["--after-failed", "a1", "true"]].concat());
        let ran = sandbox.drain(1);
        acts_on_nothing(&ran, evil);
        for args in SHOWING {
            acts_on_nothing(&sandbox.fairq(args), &format!("{args:?} of {evil:?}"));
        }
        let step = sandbox.step("a1");
        for (field, value) in [
            ("key", json!(evil)),
            ("name", json!(evil)),
            ("tags", json!([evil])),
            ("flow", json!(evil)),
            ("cwd", json!(cwd.to_str().unwrap())),
            ("argv", json!(&command[1..])),
            ("state", json!("succeeded")),
        ] {
            assert_eq!(step[field], value, "{field}: {step:#}");
        }
        // The word came to the program as it was, through no shell.
        let out = sandbox.fairq(["logs", "a1"]).expect(0).out;
        assert!(out.starts_with(format!("{evil}\n").as_bytes()), "{evil:?}");
        assert_eq!(around(&sandbox), before, "{evil:?}");
    }
}

#[test]
fn words_that_are_no_text_are_shown_escaped_and_run_as_they_are() {
    let sandbox = Sandbox::with_shards(1);
    let word = OsString::from_vec(b"caf\xe9\xff\x1b[2J".to_vec());
    let cwd = sandbox.work("").join(&word);
    fs::create_dir(&cwd).unwrap();
    let args = [OsStr::new("-C"), cwd.as_os_str(), OsStr::new("--")];
    let command = [OsStr::new("printf"), OsStr::new("%s"), &word];
    sandbox.enqueue(args.iter().chain(&command));
    sandbox.drain(1).expect(0);
    for args in SHOWING.iter().filter(|args| !args.contains(&"a2")) {
        acts_on_nothing(&sandbox.fairq(*args), &format!("{args:?}"));
    }
    assert_eq!(sandbox.fairq(["logs", "a1"]).out, word.as_bytes());
}

#[test]
fn no_variables_value_is_told_or_kept_where_it_is_not_asked_for() {
    const SECRET: &str = "s3cr3t-v4lue";
    let sandbox = Sandbox::with_shards(1);
    let told = |ran: &Ran, what: &str| {
        let text = ran.text() + &ran.err;
        assert!(!text.contains(SECRET), "{what}: {text}");
    };
    fs::write(sandbox.work("vars"), format!("FROM_FILE={SECRET}\n")).unwrap();
    fs::write(sandbox.work("bad"), format!("{SECRET}\n")).unwrap();
    fs::create_dir(sandbox.work("gone")).unwrap();
    let var = format!("TOKEN={SECRET}");
    let large = format!("LARGE={SECRET}{}", "x".repeat(100_000));
    let vars = ["-e", var.as_str(), "--env-file", "vars"];
    let put = |options: &[&str], command: &[&str]| {
        let ran = sandbox.fairq([&["enqueue"], &vars[..], options, command].concat());
        told(&ran.expect(0), "enqueue");
    };
    put(&[], &["test -n \"$TOKEN$FROM_FILE\""]);
    put(&["--retries", "1", "--backoff", "1ms"], &["exit 3"]);
    put(&["-C", "gone"], &["true"]);
    put(&["-e", &large], &["--argv", "/no/such/program"]);
    put(&["--hold"], &["true"]);
    fs::remove_dir(sandbox.work("gone")).unwrap();
    let empty = format!("={SECRET}");
    for wrong in [
        &["enqueue", "-e", &empty, "true"][..],
        &["enqueue", "--env-file", "bad", "true"],
        &["edit", "a5", "-e", &empty],
    ] {
        told(&sandbox.fairq(wrong).expect(2), "a refusal");
    }
    let objects = format!("{{\"command\": \"true\", \"env\": {{\"A\": [\"{SECRET}\"]}}}}\n");
    let ran = sandbox.fairq_with(["enqueue", "--from-ndjson", "-"], objects.as_bytes());
    told(&ran.expect(2), "a line that is refused");
    told(
        &sandbox.fairq(["run", "--drain", "--workers", "1", "--json"]),
        "the run",
    );
    told(&sandbox.fairq(["edit", "a5", "-e", &var]).expect(0), "edit");
    for id in ["a1", "a2", "a3", "a4", "a5"] {
        for about in ["show", "explain", "logs"] {
            told(&sandbox.fairq([about, id]), about);
        }
        told(&sandbox.fairq(["show", id, "--json"]), "show");
    }
    for args in SHOWING {
        told(&sandbox.fairq(args), args[0]);
        told(&sandbox.fairq(args.iter().chain(&["--json"])), args[0]);
    }
    let kept = sandbox.fairq(["show", "a1", "--show-env"]).expect(0).text();
    assert!(kept.contains(SECRET), "it is there for who asks: {kept}");
    // Only the databases hold it.
    let mut dirs = vec![sandbox.store()];
    let mut files = 0;
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if !path.to_str().unwrap().contains(".db") {
                files += 1;
                let bytes = fs::read(&path).unwrap();
                let found = bytes
                    .windows(SECRET.len())
                    .any(|part| part == SECRET.as_bytes());
                assert!(!found, "{}", path.display());
            }
        }
    }
    assert!(files >= 3, "the manifest, events and decisions at least");
}
