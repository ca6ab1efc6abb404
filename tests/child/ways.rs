//! Two ways to make a process, and that nobody can tell by which it was made.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use fairq::crew::child::StartError;
use fairq::crew::launch::Launcher;
use fairq::model::{Command, Ending};
use nix::sys::signal::{SigSet, Signal};

use crate::support::*;

/// What a command came to, with what differs from one bench to another taken out.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    To(Ending, Vec<u8>, Vec<u8>),
    Never(String),
    NotNow(String),
}

fn came(bench: &mut Bench, command: Command) -> Came {
    let root = bench.root.path().display().to_string();
    let plain = |bytes: Vec<u8>| {
        String::from_utf8_lossy(&bytes)
            .replace(&root, "ROOT")
            .into_bytes()
    };
    match bench.start(command) {
        Ok(child) => {
            let ran = bench.finish(&child);
            Came::To(ran.ended.ending, plain(ran.out), plain(ran.err))
        }
        Err(StartError::Never { reason }) => Came::Never(reason.replace(&root, "ROOT")),
        Err(StartError::NotNow { reason }) => Came::NotNow(reason.replace(&root, "ROOT")),
    }
}

/// Holds the two ways against each other, the bench prepared alike for both.
fn both(what: &str, prepare: impl Fn(&mut Bench), command: &Command) -> Came {
    let [own, library] = [Launcher::of_this_thread(), Launcher::by_library()].map(|launcher| {
        let mut bench = Bench::new();
        bench.launcher = launcher;
        prepare(&mut bench);
        came(&mut bench, command.clone())
    });
    assert_eq!(own, library, "{what}");
    own
}

#[test]
fn a_process_is_the_same_whichever_way_it_was_made() {
    let nothing = |_: &mut Bench| ();
    let told = both("directory", nothing, &argv(&["/bin/pwd", "-P"]));
    assert_eq!(
        told,
        Came::To(
            Ending::Exited { code: 0 },
            b"ROOT/work\n".to_vec(),
            Vec::new()
        )
    );
    let lines = [
        "ls -l /proc/self/fd | grep -c .",
        // What is ignored differs where we were started to ignore something.
        "grep -E '^(Sig(Blk|Cgt)|Umask)' /proc/self/status; ulimit -a",
        "ps -o pid= -o pgid= -p $$ | awk '{print $1 == $2}'; readlink /proc/$$/fd/0; cat; echo err >&2",
        "kill -9 $$",
        "kill -s RTMIN+3 $$",
        "exit 3",
    ];
    for line in lines {
        let Came::To(..) = both(line, nothing, &sh(line)) else {
            panic!("{line} did not run");
        };
    }
}

#[test]
fn variables_are_the_same_whichever_way_they_were_given() {
    let crowd = |bench: &mut Bench| {
        let odd = OsStr::from_bytes(b"a=b\xff\n\"$(id)'");
        let plain = [
            ("A", OsStr::new("1")),
            ("B", odd),
            ("FAIRQ_ID", odd),
            ("Z", odd),
        ];
        let pairs = plain.map(|(name, value)| (name.into(), value.to_owned()));
        bench.claim.env = std::sync::Arc::new(fairq::model::Environment::from_pairs(pairs));
        bench.claim.policy.vars = [("Z", "last"), ("FAIRQ_KEY", "mine"), ("NEW", "")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
    };
    // Not by way of a shell, which makes one of two variables with one name. The order is no promise.
    let [own, library] = [Launcher::of_this_thread(), Launcher::by_library()].map(|launcher| {
        let mut bench = Bench::new();
        bench.launcher = launcher;
        crowd(&mut bench);
        let Came::To(_, out, _) = came(&mut bench, argv(&["/usr/bin/env", "-0"])) else {
            panic!("env did not run");
        };
        let mut entries: Vec<Vec<u8>> = out.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        entries.sort_unstable();
        entries
    });
    assert_eq!(own, library);
    let has = |entry: &[u8]| own.iter().any(|found| found == entry);
    assert!(has(b"Z=last") && has(b"NEW=") && has(b"FAIRQ_KEY=default") && has(b"FAIRQ_ID=a17"));
}

#[test]
fn what_cannot_be_started_is_refused_alike() {
    let nothing = |_: &mut Bench| ();
    let gone = |bench: &mut Bench| fs::remove_dir(bench.work()).unwrap();
    let file = |bench: &mut Bench| {
        let there = bench.root.path().join("file");
        fs::write(&there, "").unwrap();
        bench.claim.cwd = there;
    };
    let long = "x".repeat(200_000);
    let wide = "x".repeat(100_000);
    let many: Vec<&str> = std::iter::once("/bin/true")
        .chain(std::iter::repeat_n(wide.as_str(), 40))
        .collect();
    let refused = [
        both("no program", nothing, &argv(&["/no/such/program"])),
        both("no directory", gone, &argv(&["/bin/true"])),
        both("a file as directory", file, &argv(&["/bin/true"])),
        both("a word too long", nothing, &argv(&["/bin/true", &long])),
        both("too many words", nothing, &argv(&many)),
    ];
    for came in refused {
        assert!(matches!(came, Came::Never(_)), "{came:?}");
    }
}

/// What this thread blocks, a step would be deaf to for life.
#[test]
fn a_step_blocks_no_signal_though_its_worker_does() {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTERM);
    blocked.thread_block().unwrap();
    let nothing = |_: &mut Bench| ();
    let came = both("mask", nothing, &sh("grep SigBlk /proc/self/status"));
    blocked.thread_unblock().unwrap();
    let none = b"SigBlk:\t0000000000000000\n".to_vec();
    assert_eq!(came, Came::To(Ending::Exited { code: 0 }, none, Vec::new()));
}

/// An idle worker that stands in a directory keeps its file system from being unmounted.
#[test]
fn a_worker_stands_in_no_steps_directory() {
    let mut bench = Bench::new();
    bench.run(sh("true"));
    let here = fs::read_link("/proc/thread-self/cwd").unwrap();
    assert_eq!(here.as_os_str(), "/");
    bench.claim.cwd = "/no/such/directory".into();
    assert!(bench.start(sh("true")).is_err());
    let here = fs::read_link("/proc/thread-self/cwd").unwrap();
    assert_eq!(here.as_os_str(), "/");
}
