//! The control socket of a live runner, asked in its own words.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::BLOCKER;
use crate::common::{Sandbox, until};

/// Returns the control socket of the only runner.
fn socket(sandbox: &Sandbox) -> PathBuf {
    let runners = sandbox.store().join("runners");
    let runner = fs::read_dir(runners).unwrap().next().unwrap().unwrap();
    runner.path().join("control")
}

/// Asks the only runner in its own words.
fn ask(sandbox: &Sandbox, question: &str) -> Value {
    let mut stream = UnixStream::connect(socket(sandbox)).unwrap();
    stream
        .write_all(format!("{question}\n").as_bytes())
        .unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    serde_json::from_str(&told).unwrap()
}

#[test]
fn a_crew_is_resized_while_it_works() {
    let sandbox = Sandbox::with_shards(2);
    let _runner = sandbox.runner(&["--workers", "1"]);
    sandbox.enqueue_lines(&[], &vec![BLOCKER.to_owned(); 3]);
    until("one step runs", || sandbox.count("running") == 1);
    // The socket is there before the first step is taken or shortly after.
    until("it answers", || socket(&sandbox).exists());
    assert_eq!(
        ask(&sandbox, r#"{"ask":"resize","workers":3}"#)["ok"]["workers"],
        3
    );
    until("three steps run", || sandbox.count("running") == 3);
    let crew = ask(&sandbox, r#"{"ask":"runner"}"#)["ok"]["crew"].take();
    assert_eq!(crew["workers"], 3);
    for wrong in ["0", "1000000", "-1", "\"many\""] {
        let told = ask(
            &sandbox,
            &format!(r#"{{"ask":"resize","workers":{wrong}}}"#),
        );
        assert!(told["error"].is_string(), "{wrong}: {told}");
    }
    assert_eq!(
        ask(&sandbox, r#"{"ask":"runner"}"#)["ok"]["crew"]["workers"],
        3
    );
    fs::write(sandbox.work("go"), "").unwrap();
    until("all is done", || sandbox.count("succeeded") == 3);
}

/// They say nothing, half of something or rubbish, and keep their connections.
#[test]
fn two_hundred_rude_clients_disturb_neither_the_steps_nor_who_asks() {
    let sandbox = Sandbox::with_shards(2);
    let _runner = sandbox.runner(&["--workers", "2"]);
    until("it answers", || {
        sandbox.fairq(["inspect", "pool"]).code == 0
    });
    let path = socket(&sandbox);
    let rude: Vec<UnixStream> = (0..200)
        .map(|number| {
            let mut stream = UnixStream::connect(&path).unwrap();
            let words: &[u8] = match number % 3 {
                0 => b"",
                1 => b"{\"ask\":",
                _ => b"\xff\0rubbish\n",
            };
            stream.write_all(words).unwrap();
            stream
        })
        .collect();
    sandbox.enqueue_lines(&[], &vec!["true".to_owned(); 20]);
    for about in ["runners", "cache", "pool"] {
        sandbox.json(["inspect", about]);
    }
    until("the steps are done", || sandbox.count("succeeded") == 20);
    assert!(ask(&sandbox, r#"{"ask":"cache"}"#)["ok"].is_object());
    drop(rude);
}
