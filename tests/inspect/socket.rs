//! The control socket of a live runner, asked in its own words.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use fairq::ambient::Dice;
use serde_json::Value;

use crate::BLOCKER;
use crate::common::{Sandbox, until};
use crate::seeds;

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

/// What a runner takes of the machine: descriptors, threads, and kilobytes of memory.
fn taken(pid: u32) -> [usize; 3] {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let memory = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    [count("fd"), count("task"), memory]
}

/// Returns something like a question. None of them asks for anything to be done: no step has that
/// fence, whatever the dice do to its digits.
fn rubbish(dice: &mut Dice) -> Vec<u8> {
    let samples: [&[u8]; 6] = [
        b"{\"ask\":\"cache\"}\n",
        b"{\"ask\":\"plan\"}\n{\"ask\":\"runner\"}\n",
        b"{\"ask\":\"signal\",\"steps\":[[\"a999\",4294967295]],\"signal\":9}\n",
        b"{\"ask\":{\"ask\":{\"ask\":[[[[[[[[[[",
        b"\xff\xfe\0\x1b[2J\n",
        b"",
    ];
    let pick = |dice: &mut Dice, below: usize| usize::try_from(dice.below(below as u64)).unwrap();
    let mut bytes = samples[pick(dice, samples.len())].to_vec();
    for _ in 0..dice.below(4) {
        let at = pick(dice, bytes.len() + 1);
        match dice.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, 0),
            2 => drop(bytes.splice(at..at, b"[[[[".repeat(pick(dice, 30_000)))),
            _ => drop(bytes.splice(at..at, *b"\"\\ud800")),
        }
    }
    bytes
}

/// A client that sends part after part, perhaps hears the answer, perhaps goes at any time.
fn rude_client(path: &Path, mut dice: Dice) {
    for _ in 0..60 {
        let bytes = rubbish(&mut dice);
        let Ok(mut stream) = UnixStream::connect(path) else {
            continue;
        };
        let size = 1 + usize::try_from(dice.below(20_000)).unwrap();
        let sent = bytes
            .chunks(size)
            .try_for_each(|part| stream.write_all(part));
        if sent.is_ok() && dice.below(2) == 0 {
            // Half a question is over when nothing more can come.
            stream.shutdown(Shutdown::Write).ok();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).ok();
        }
    }
}

/// Many clients send what is nearly a question while steps run: the steps end, whoever asks in earnest
/// is answered, and when the clients are gone the runner has nothing left of them.
#[test]
fn clients_that_send_rubbish_cost_a_runner_nothing_that_lasts() {
    let sandbox = Sandbox::with_shards(2);
    let runner = sandbox.runner(&["--workers", "2", "-q"]);
    until("it answers", || {
        sandbox.fairq(["inspect", "pool"]).code == 0
    });
    sandbox.enqueue_lines(&[], &vec!["true".to_owned(); 20]);
    until("it has worked", || sandbox.count("succeeded") == 20);
    let path = socket(&sandbox);
    ask(&sandbox, r#"{"ask":"plan"}"#);
    let before = taken(runner.pid());
    seeds::each_seed(1, |dice| {
        std::thread::scope(|scope| {
            for number in 0..8 {
                let own = Dice::seeded(dice.clone().bits() ^ number);
                let path = &path;
                scope.spawn(move || rude_client(path, own));
            }
            sandbox.enqueue_lines(&[], &vec!["true".to_owned(); 40]);
            for about in ["cache", "runner", "plan", "pool", "crew"] {
                let told = ask(&sandbox, &format!("{{\"ask\":\"{about}\"}}"));
                assert!(!told["ok"].is_null(), "{about}: {told}");
            }
        });
        until("the steps are done", || sandbox.count("succeeded") == 60);
        // A pool of connections may have grown by one meanwhile; of hundreds of clients, something kept
        // of each would be far more.
        until("nothing of the clients is open", || {
            let now = taken(runner.pid());
            now[0] < before[0] + 40 && now[1] < before[1] + 8
        });
        // What an allocator keeps is not counted; a question kept from each of them would be.
        let grown = taken(runner.pid())[2].saturating_sub(before[2]);
        assert!(grown < 64 * 1024, "{grown} KiB");
    });
}
