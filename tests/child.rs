//! Running one command: what it gets, what is seen of it, and what it leaves.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairq::ambient::{Clock as _, SystemClock};
use fairq::crew::capture::{Capture, kept_path, live_path};
use fairq::crew::child::{self, Child, Ended, StartError};
use fairq::crew::leftovers::Leftovers;
use fairq::crew::process::ProcessIdentity;
use fairq::model::{
    Band, Captured, Claim, Command, Ending, Environment, FairnessKey, Policy, RunnerId, Span,
    Stream, Timestamp,
};

/// What a stream may hold to be kept with the step's record, in bytes.
const INLINE_MAX: u64 = 64 * 1024;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Waits until something is so, looking again every few milliseconds; fails after a minute, which
/// no healthy run comes near.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < Duration::from_secs(60), "never: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/stat")).exists() && !is_zombie(pid)
}

fn is_zombie(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("\nState:\tZ")
}

fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("\nState:\tT")
}

/// One worker on a store of its own, in a directory that steps may use.
struct Bench {
    root: tempfile::TempDir,
    capture: Capture,
    claim: Claim,
}

/// What became of a command.
struct Ran {
    ended: Ended,
    out: Vec<u8>,
    err: Vec<u8>,
    captured: (Captured, Captured),
}

impl Ran {
    fn code(&self) -> Option<i32> {
        if let Ending::Exited { code } = self.ended.ending {
            Some(code)
        } else {
            None
        }
    }
}

fn sh(line: &str) -> Command {
    Command::Shell(line.into())
}

fn argv<W: AsRef<[u8]>>(words: &[W]) -> Command {
    let word = |word: &W| OsString::from_vec(word.as_ref().to_vec());
    Command::Argv(words.iter().map(word).collect())
}

fn env(pairs: &[(&str, &str)]) -> Arc<Environment> {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    Arc::new(Environment::from_pairs(pairs))
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let runner = root.path().join("runners");
        fs::create_dir(&runner).unwrap();
        let work = root.path().join("work");
        fs::create_dir(&work).unwrap();
        let claim = Claim {
            id: "a17".parse().unwrap(),
            runner: RunnerId::new(1),
            fence: 0,
            attempt: 1,
            band: Band::DEFAULT,
            key: FairnessKey::default(),
            name: None,
            command: sh("true"),
            cwd: work,
            env: env(&[("PATH", "/usr/bin:/bin")]),
            policy: Policy::default(),
            since: Timestamp::default(),
            claimed: Timestamp::default(),
        };
        let capture = Capture::create(root.path(), &runner, 4, INLINE_MAX).unwrap();
        Self {
            root,
            capture,
            claim,
        }
    }

    fn work(&self) -> &Path {
        &self.claim.cwd
    }

    fn live(&self, stream: Stream) -> PathBuf {
        live_path(&self.root.path().join("runners"), 4, stream)
    }

    fn start(&mut self, command: Command) -> Result<Child, StartError> {
        self.claim.command = command;
        self.claim.fence += 1;
        child::start(&self.claim, &mut self.capture)
    }

    fn finish(&mut self, child: &Child) -> Ran {
        let ended = child.wait();
        let left_some = ended.leftover.is_some();
        let captured = self
            .capture
            .collect(self.claim.id, self.claim.fence, left_some)
            .unwrap();
        Ran {
            ended,
            out: self.bytes(&captured.0),
            err: self.bytes(&captured.1),
            captured,
        }
    }

    fn run(&mut self, command: Command) -> Ran {
        let child = self.start(command).unwrap();
        self.finish(&child)
    }

    fn bytes(&self, captured: &Captured) -> Vec<u8> {
        match captured {
            Captured::Empty => Vec::new(),
            Captured::Inline(bytes) => bytes.clone(),
            Captured::File { path, .. } => fs::read(self.root.path().join(path)).unwrap(),
        }
    }

    /// Returns why a command can never be started.
    fn refusal(&mut self, command: Command) -> String {
        match self.start(command) {
            Err(StartError::Never { reason }) => reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Returns the number that a step wrote to a file in its directory, once it is there.
    fn pid_in(&self, name: &str) -> u32 {
        let path = self.work().join(name);
        let read = || {
            fs::read_to_string(&path)
                .ok()?
                .strip_suffix('\n')?
                .parse()
                .ok()
        };
        until(name, || read().is_some());
        read().unwrap()
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

mod what_it_gets {
    use super::*;

    #[test]
    fn an_argv_arrives_byte_for_byte() {
        let words: &[&[u8]] = &[
            b"$$",
            b"${HOME}",
            b"%n",
            b"%%",
            b"\\n",
            b"*",
            b"~",
            b"",
            b" ",
            b"\xff\xfe\xc3",
            b"-c",
            b"Let's go ; \"q\"\n",
            b"`id`",
            b"--",
        ];
        let mut command: Vec<&[u8]> = vec![b"printf", b"[%s]"];
        command.extend(words);
        let mut expected = Vec::new();
        for word in words {
            expected.extend_from_slice(&[b"[", *word, b"]"].concat());
        }
        let mut bench = Bench::new();
        fs::write(bench.work().join("a file"), "").unwrap();
        assert_eq!(bench.run(argv(&command)).out, expected);
    }

    #[test]
    fn a_shell_line_is_a_shells_and_keeps_its_bytes() {
        let mut bench = Bench::new();
        let line =
            OsString::from_vec(b"printf '\xff%s' a | tr a b; printf '%s.' \"$0\" \"$#\"".to_vec());
        assert_eq!(bench.run(Command::Shell(line)).out, b"\xffbsh.0.");
        assert_eq!(bench.run(sh("")).code(), Some(0));
    }

    #[test]
    fn a_shell_line_may_begin_like_an_option() {
        let mut bench = Bench::new();
        for name in ["-x", "+x", "--", "-"] {
            bench.script(name, "#!/bin/sh\necho ran\n");
            let path = format!("{}:/bin", bench.work().display());
            bench.claim.env = env(&[("PATH", &path)]);
            assert_eq!(bench.run(sh(name)).out, b"ran\n", "{name}");
        }
    }

    #[test]
    fn the_environment_is_the_captured_one_and_the_steps_variables() {
        let mut bench = Bench::new();
        let bad = OsStr::from_bytes(b"x=\xa3\n").to_owned();
        bench.claim.env = Arc::new(Environment::from_pairs([
            ("ONE".into(), bad),
            ("EMPTY".into(), OsString::new()),
            ("FAIRQ_ID".into(), "b9".into()),
            ("FAIRQ_NAME".into(), "the step around us".into()),
            ("FAIRQ_DEADLINE".into(), "stale".into()),
            ("FAIRQ_OTHER".into(), "not ours".into()),
        ]));
        bench.claim.attempt = 3;
        let ran = bench.run(argv(&["/usr/bin/env", "-0"]));
        let mut got: Vec<&[u8]> = ran.out.split(|byte| *byte == 0).collect();
        got.sort_unstable();
        let store = format!("FAIRQ_STORE={}", bench.root.path().display());
        let mut expected: Vec<&[u8]> = vec![
            b"",
            b"ONE=x=\xa3\n",
            b"EMPTY=",
            b"FAIRQ_ID=a17",
            b"FAIRQ_ATTEMPT=3",
            b"FAIRQ_BAND=100",
            b"FAIRQ_KEY=default",
            b"FAIRQ_WORKER=4",
            b"FAIRQ_OTHER=not ours",
            store.as_bytes(),
        ];
        expected.sort_unstable();
        assert_eq!(got, expected);

        bench.claim.name = Some("n\u{e4}me".to_owned());
        let ran = bench.run(argv(&["/usr/bin/printenv", "FAIRQ_NAME"]));
        assert_eq!(ran.out, "n\u{e4}me\n".as_bytes());
    }

    #[test]
    fn the_program_is_found_with_the_steps_own_path() {
        let mut bench = Bench::new();
        fs::create_dir(bench.work().join("tools")).unwrap();
        bench.script("tools/mytool", "#!/bin/sh\necho \"$0\" here\n");
        bench.claim.env = env(&[("PATH", "tools")]);
        let ran = bench.run(argv(&["mytool"]));
        assert!(ran.out.ends_with(b"tools/mytool here\n"), "{:?}", ran.out);
        bench.claim.env = env(&[]);
        assert_eq!(bench.run(argv(&["true"])).code(), Some(0), "without a PATH");
        let ran = bench.run(argv(&["cat", "/proc/self/cmdline"]));
        assert_eq!(ran.out, b"cat\0/proc/self/cmdline\0", "argument 0 as typed");
    }

    #[test]
    fn a_program_without_a_format_is_run_by_the_shell() {
        let mut bench = Bench::new();
        bench.script("plain", "echo \"$1\" \"$2\" \"$#\"\n");
        let ran = bench.run(argv(&["./plain", "a b", "$c"]));
        assert_eq!(ran.out, b"a b $c 2\n");
        assert_eq!(ran.code(), Some(0));
    }

    #[test]
    fn it_runs_in_its_own_directory() {
        let mut bench = Bench::new();
        let ran = bench.run(argv(&["/bin/pwd"]));
        let work = fs::canonicalize(bench.work()).unwrap();
        assert_eq!(ran.out, [work.as_os_str().as_bytes(), b"\n"].concat());
    }

    #[test]
    fn its_standard_input_is_empty() {
        let mut bench = Bench::new();
        let ran = bench.run(argv(&["cat"]));
        assert_eq!((ran.code(), ran.out), (Some(0), Vec::new()));
        assert_eq!(bench.run(sh("read x")).code(), Some(1));
    }

    #[test]
    fn it_gets_no_descriptors_but_the_three() {
        // What the test itself was given by whoever started it may be passed on; count it out.
        let passed_on = fs::read_dir("/proc/self/fdinfo")
            .unwrap()
            .filter_map(|entry| {
                let info = fs::read_to_string(entry.unwrap().path()).ok()?;
                let flags = info
                    .lines()
                    .find_map(|line| line.strip_prefix("flags:\t"))?;
                let flags = u32::from_str_radix(flags, 8).unwrap();
                (flags & 0o2_000_000 == 0).then_some(())
            });
        let passed_on = passed_on.count();
        let mut bench = Bench::new();
        let _open = fs::File::open("/dev/zero").unwrap();
        let ran = bench.run(sh("ls /proc/$$/fd"));
        let got = ran.out.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(got, passed_on.max(3));
    }

    #[test]
    fn it_leads_a_group_of_its_own_and_no_signal_is_blocked() {
        let mut bench = Bench::new();
        let child = bench
            .start(argv(&["cat", "/proc/self/stat", "/proc/self/status"]))
            .unwrap();
        let group = child.pid().to_string();
        let ran = bench.finish(&child);
        let text = String::from_utf8(ran.out).unwrap();
        assert_eq!(text.split(' ').nth(4), Some(&*group));
        let mask = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        assert_eq!(mask("SigBlk"), 0);
        let pipe = 1 << (Signal::SIGPIPE as u64 - 1);
        assert_eq!(mask("SigIgn") & pipe, 0, "a pipe that breaks must end it");
    }
}

mod refusals {
    use super::*;

    #[test]
    fn a_missing_directory_is_named_and_not_the_program() {
        let mut bench = Bench::new();
        bench.claim.cwd = bench.root.path().join("gone");
        let gone = bench.claim.cwd.display().to_string();
        for command in [
            sh("true"),
            argv(&["true"]),
            argv(&["no-such-program"]),
            argv(&["./x"]),
        ] {
            let reason = bench.refusal(command);
            assert!(
                reason.contains(&gone) && reason.contains("os error 2"),
                "{reason}"
            );
            assert!(!reason.contains("/bin/"), "{reason}");
        }
        fs::create_dir(&bench.claim.cwd).unwrap();
        assert_eq!(bench.run(sh("true")).code(), Some(0));
    }

    #[test]
    fn a_file_as_a_directory_is_named() {
        let mut bench = Bench::new();
        let file = bench.script("file", "");
        bench.claim.cwd.clone_from(&file);
        let reason = bench.refusal(sh("true"));
        assert!(reason.contains(&*file.to_string_lossy()), "{reason}");
        assert!(reason.contains("os error 20"), "{reason}");
    }

    #[test]
    fn what_cannot_be_run_is_named_with_its_error() {
        let mut bench = Bench::new();
        fs::write(bench.work().join("data"), "").unwrap();
        bench.script("script", "#!/no/such/interpreter\n");
        for (words, parts) in [
            (&["no-such-program"][..], ["no-such-program", "os error 2"]),
            (&["/no/such/program"], ["/no/such/program", "os error 2"]),
            (&["./data"], ["/work/./data", "os error 13"]),
            (&["./data/x"], ["/work/./data/x", "os error 20"]),
            (&["."], ["\".\"", "os error 2"]),
            (&["/"], ["cannot run /", "os error 13"]),
            (&[""], ["empty", "os error 2"]),
            (&["./script"], ["interpreter", "os error 2"]),
        ] {
            let reason = bench.refusal(argv(words));
            assert!(
                parts.iter().all(|part| reason.contains(part)),
                "{words:?}: {reason}"
            );
        }
        let reason = bench.refusal(Command::Argv(Vec::new()));
        assert!(reason.contains("empty"), "{reason}");
        let reason = bench.refusal(argv(&[&b"/bin/echo"[..], b"a\0b"]));
        assert!(reason.contains("nul"), "{reason}");
    }

    #[test]
    fn too_much_is_refused_with_sizes() {
        let mut bench = Bench::new();
        let large = "x".repeat(200_000);
        bench.claim.env = env(&[("PATH", "/bin"), ("LARGE", &large)]);
        let reason = bench.refusal(sh("true"));
        assert!(reason.contains("os error 7"), "{reason}");
        assert!(
            reason.contains("LARGE") && reason.contains("200007"),
            "{reason}"
        );
        assert!(!reason.contains("xxx"), "a value is never shown");

        let some = "y".repeat(100_000);
        let names: Vec<String> = (0..30).map(|number| format!("V{number}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*some)).collect();
        bench.claim.env = env(&pairs);
        let reason = bench.refusal(sh("true"));
        assert!(reason.contains("30 variables"), "{reason}");

        bench.claim.env = env(&[]);
        let reason = bench.refusal(sh(&format!("echo {large}")));
        assert!(reason.contains("200006"), "{reason}");
        let words = vec!["a".repeat(99); 10_000];
        let mut command = vec!["printf".to_owned(), "%s".to_owned()];
        command.extend(words);
        assert_eq!(bench.run(argv(&command)).out.len(), 990_000);
    }

    #[test]
    fn a_refused_step_leaves_the_files_to_the_next() {
        let mut bench = Bench::new();
        let before = fs::metadata(bench.live(Stream::Stdout)).unwrap().ino();
        bench.refusal(argv(&["no-such-program"]));
        bench.refusal(argv(&["/no/such/program"]));
        assert_eq!(
            fs::metadata(bench.live(Stream::Stdout)).unwrap().ino(),
            before
        );
        let child = bench.start(sh("echo a")).unwrap();
        assert_eq!(
            fs::metadata(bench.live(Stream::Stdout)).unwrap().ino(),
            before
        );
        assert_eq!(bench.finish(&child).out, b"a\n");
    }

    #[test]
    fn trouble_with_our_own_files_is_not_the_steps_fault() {
        let mut bench = Bench::new();
        fs::remove_file(bench.live(Stream::Stderr)).unwrap();
        let error = bench.start(sh("true")).unwrap_err();
        assert!(matches!(error, StartError::NotNow { .. }), "{error:?}");
    }
}

mod endings {
    use super::*;

    #[test]
    fn every_exit_code_is_reported_as_it_is() {
        let mut bench = Bench::new();
        for code in [0, 1, 2, 125, 126, 127, 128, 129, 130, 143, 255] {
            assert_eq!(bench.run(sh(&format!("exit {code}"))).code(), Some(code));
        }
    }

    #[test]
    fn death_by_a_signal_is_no_exit() {
        let mut bench = Bench::new();
        // 34 is a real-time signal, which has no name.
        for signal in [1, 2, 6, 9, 11, 13, 15, 34] {
            let ran = bench.run(sh(&format!("kill -{signal} $$")));
            assert_eq!(ran.ended.ending, Ending::Signalled { signal });
        }
    }

    #[test]
    fn a_signal_reaches_the_whole_group_while_it_runs_and_nobody_afterwards() {
        let mut bench = Bench::new();
        let child = bench
            .start(sh(
                "sh -c 'sh -c \"echo \\$\\$ >deep; exec sleep 1000\"; :'; :",
            ))
            .unwrap();
        let deep = bench.pid_in("deep");
        let identity = ProcessIdentity::of(child.pid()).unwrap();
        assert!(
            child.birth().is(identity),
            "{:?} {identity:?}",
            child.birth()
        );
        assert!(child.signal_group(Signal::SIGTERM));
        let ran = bench.finish(&child);
        assert_eq!(ran.ended.ending, Ending::Signalled { signal: 15 });
        until("the grandchild is gone", || !exists(deep));
        assert!(!child.signal_group(Signal::SIGKILL));
        let again = child.wait();
        assert_eq!(again.ending, ran.ended.ending);
        assert!(again.leftover.is_none());
    }

    #[test]
    fn a_stopped_child_is_waited_for_and_can_be_killed() {
        let mut bench = Bench::new();
        let child = bench.start(sh("kill -STOP $$; exit 3")).unwrap();
        until("it has stopped", || is_stopped(child.pid()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| child.wait().ending);
            assert!(child.signal_group(Signal::SIGTERM));
            until("it is stopped still", || is_stopped(child.pid()));
            assert!(!waiting.is_finished());
            assert!(child.signal_group(Signal::SIGKILL));
            assert_eq!(waiting.join().unwrap(), Ending::Signalled { signal: 9 });
        });
    }

    #[test]
    fn descriptors_and_zombies_do_not_pile_up() {
        let mut bench = Bench::new();
        let mut pids = Vec::new();
        for round in 0..200 {
            let child = match round % 4 {
                0 => bench.start(sh("echo a")),
                1 => bench.start(argv(&["no-such-program"])),
                2 => bench.start(argv(&["/no/such/program"])),
                _ => bench.start(argv(&["true"])),
            };
            if let Ok(child) = child {
                pids.push(child.birth());
                bench.finish(&child);
            }
        }
        let open = fs::read_dir("/proc/self/fd").unwrap();
        let root = bench.root.path();
        let after = open
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .filter(|target| target.starts_with(root))
            .count();
        // Two files, or four where a pair had to be set aside.
        assert!(after <= 4, "{after} descriptors");
        assert_eq!(pids.len(), 100);
        let remains = |birth: &&fairq::crew::process::Birth| {
            ProcessIdentity::of(birth.pid).is_some_and(|process| birth.is(process))
        };
        assert_eq!(pids.iter().filter(remains).count(), 0);
    }
}

mod output {
    use super::*;

    #[test]
    fn silence_costs_no_file() {
        let mut bench = Bench::new();
        let ran = bench.run(sh("true"));
        assert_eq!(ran.captured, (Captured::Empty, Captured::Empty));
        assert!(!bench.root.path().join("output").exists());
    }

    #[test]
    fn little_is_kept_inline_each_stream_for_itself_and_never_twice() {
        let mut bench = Bench::new();
        let ran = bench.run(sh("printf 'a\\377'; echo b >&2; printf c"));
        assert_eq!(ran.captured.0, Captured::Inline(b"a\xffc".to_vec()));
        assert_eq!(ran.captured.1, Captured::Inline(b"b\n".to_vec()));
        let ran = bench.run(sh("printf d"));
        assert_eq!(
            ran.captured,
            (Captured::Inline(b"d".to_vec()), Captured::Empty)
        );
        let live = fs::metadata(bench.live(Stream::Stdout)).unwrap();
        assert_eq!((live.len(), live.mode() & 0o777), (0, 0o600));
    }

    #[test]
    fn what_does_not_fit_inline_has_a_file_of_its_own() {
        let mut bench = Bench::new();
        let ran = bench.run(sh(&format!("head -c {INLINE_MAX} /dev/zero")));
        assert_eq!(ran.captured.0, Captured::Inline(vec![0; 65_536]));
        let more = INLINE_MAX + 1;
        let ran = bench.run(sh(&format!(
            "head -c {more} /dev/urandom | tee copy; echo e >&2"
        )));
        let path = kept_path(bench.claim.id, bench.claim.fence, Stream::Stdout);
        assert_eq!(path, Path::new("output/a0/a17-2.out"));
        assert_eq!(
            ran.captured.0,
            Captured::File {
                path: path.clone(),
                size: more
            }
        );
        assert_eq!(ran.out, fs::read(bench.work().join("copy")).unwrap());
        assert_eq!(ran.err, b"e\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let kept = bench.root.path().join(path);
        assert_eq!(mode(&kept), 0o600);
        assert_eq!(mode(kept.parent().unwrap()), 0o700);
        assert_eq!(bench.run(sh("echo next")).out, b"next\n");
    }

    #[test]
    fn what_is_written_can_be_read_while_it_runs() {
        let mut bench = Bench::new();
        let child = bench
            .start(sh("echo live; until test -e go; do sleep 0.01; done"))
            .unwrap();
        let live = bench.live(Stream::Stdout);
        until("the line is there", || {
            fs::read(&live).unwrap() == b"live\n"
        });
        fs::write(bench.work().join("go"), "").unwrap();
        assert_eq!(bench.finish(&child).out, b"live\n");
    }

    const WRITES_LATE: &str = "echo $$ >leaked; until test -e write; do sleep 0.01; done; echo late; echo late >&2; : >written";

    /// Runs a step that leaves somebody behind who writes when told to, and other steps meanwhile.
    /// Returns what the store has of the first step's output in the end.
    fn leak(who: &str, to: &str) -> Option<Vec<u8>> {
        let mut bench = Bench::new();
        bench.claim.policy.leave_group = true;
        let late = format!("{who} sh -c '{WRITES_LATE}' {to}");
        let ran = bench.run(sh(&format!(
            "{late} & echo hi; until test -s leaked; do sleep 0.01; done"
        )));
        assert_eq!(ran.out, b"hi\n", "{late}");
        let first = bench.claim.fence;
        let leaked = bench.pid_in("leaked");
        assert!(exists(leaked), "{late}");

        // The files go round meanwhile.
        for _ in 0..3 {
            assert_eq!(bench.run(sh("echo -n; setsid sleep 0.1 &")).out, b"");
        }
        let child = bench
            .start(sh("echo mine; until test -e end; do sleep 0.01; done"))
            .unwrap();
        fs::write(bench.work().join("write"), "").unwrap();
        until("it has written", || bench.work().join("written").exists());
        fs::write(bench.work().join("end"), "").unwrap();
        let ran = bench.finish(&child);
        assert_eq!((&*ran.out, &*ran.err), (&b"mine\n"[..], &b""[..]), "{late}");
        until("it has gone", || !exists(leaked));
        for _ in 0..3 {
            let ran = bench.run(sh("setsid sleep 0.1 &"));
            assert_eq!((&*ran.out, &*ran.err), (&b""[..], &b""[..]), "{late}");
        }
        fs::read(
            bench
                .root
                .path()
                .join(kept_path(bench.claim.id, first, Stream::Stdout)),
        )
        .ok()
    }

    #[test]
    fn a_leaked_child_does_not_hang_us_and_writes_into_no_other_step() {
        assert_eq!(leak("", ""), Some(b"hi\nlate\n".to_vec()));
    }

    #[test]
    fn a_child_that_leaked_out_of_the_group_writes_into_no_other_step() {
        assert_eq!(leak("setsid", ""), None);
    }

    #[test]
    fn a_leaked_child_that_opened_the_stream_anew_writes_into_no_other_step() {
        let anew = ">>/dev/stdout 2>>/dev/stderr";
        assert_eq!(leak("", anew), Some(b"hi\nlate\n".to_vec()));
        // Out of the group, but with one stream as it was.
        assert_eq!(leak("setsid", ">>/dev/stdout"), None);
    }

    #[test]
    fn workers_that_start_steps_at_once_do_not_take_each_other_for_leaks() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut bench = Bench::new();
                    for round in 0..100 {
                        let text = format!("{round}\n").into_bytes();
                        let ran = bench.run(argv(&["echo", &round.to_string()]));
                        assert_eq!(ran.captured.0, Captured::Inline(text));
                    }
                    // Two pairs and no more, however often they went round.
                    let runner = bench.root.path().join("runners");
                    assert!(fs::read_dir(runner).unwrap().count() <= 4);
                    assert!(!bench.root.path().join("output").exists());
                });
            }
        });
    }

    #[test]
    fn output_that_was_never_collected_is_nobody_elses() {
        let mut bench = Bench::new();
        bench.start(sh("echo first")).unwrap().wait();
        assert_eq!(bench.run(sh("echo second")).out, b"second\n");
    }

    #[test]
    fn a_worker_has_its_files_once() {
        let bench = Bench::new();
        let runner = bench.root.path().join("runners");
        assert!(Capture::create(bench.root.path(), &runner, 4, INLINE_MAX).is_err());
    }
}

mod leftovers {
    use super::*;

    const STAYS: &str = "sh -c 'trap \"\" TERM; echo $$ >left; while :; do sleep 0.05; done' & until test -s left; do sleep 0.01; done";
    const LONG: Span = Span::from_millis(3_600_000);

    fn sweeper() -> Leftovers {
        Leftovers::new(Arc::new(SystemClock::new()))
    }

    #[test]
    fn a_step_without_any_leaves_none() {
        let mut bench = Bench::new();
        assert!(bench.run(sh("sleep 0.01 & wait")).ended.leftover.is_none());
    }

    #[test]
    fn what_heeds_the_request_is_gone_without_the_grace() {
        let mut bench = Bench::new();
        let leftovers = sweeper();
        let ran = bench.run(sh("sleep 1000 & echo $! >left"));
        let left = bench.pid_in("left");
        if let Some(leftover) = ran.ended.leftover {
            leftovers.end(leftover, LONG);
        }
        until("it is gone", || !exists(left));
        until("the sweeper knows", || leftovers.is_empty());
    }

    #[test]
    fn what_does_not_heed_it_is_killed_after_the_grace() {
        let mut bench = Bench::new();
        let leftovers = sweeper();
        for round in 0..2 {
            let ran = bench.run(sh(STAYS));
            assert_eq!(ran.code(), Some(0));
            let left = bench.pid_in("left");
            leftovers.end(ran.ended.leftover.unwrap(), Span::from_millis(150));
            assert!(!leftovers.is_empty() || !exists(left));
            until("it is gone", || !exists(left));
            until("the sweeper has ended", || leftovers.is_empty());
            fs::remove_file(bench.work().join("left")).unwrap();
            // The second round needs a sweeper again after the first one has ended.
            assert!(round < 2);
        }
    }

    #[test]
    fn closing_kills_at_once_and_so_does_coming_too_late() {
        let mut bench = Bench::new();
        let leftovers = sweeper();
        let ran = bench.run(sh(STAYS));
        let left = bench.pid_in("left");
        leftovers.end(ran.ended.leftover.unwrap(), LONG);
        assert!(exists(left));
        leftovers.close();
        until("it is gone", || !exists(left));

        fs::remove_file(bench.work().join("left")).unwrap();
        let ran = bench.run(sh(STAYS));
        let left = bench.pid_in("left");
        leftovers.end(ran.ended.leftover.unwrap(), LONG);
        until("it is gone", || !exists(left));
    }

    #[test]
    fn a_group_that_may_live_gets_no_signal() {
        let mut bench = Bench::new();
        bench.claim.policy.leave_group = true;
        let ran = bench.run(sh("sh -c 'trap \"echo got >signal\" TERM HUP; echo $$ >left; while :; do sleep 0.01; done' & until test -s left; do sleep 0.01; done"));
        let left = bench.pid_in("left");
        assert!(ran.ended.leftover.is_some());
        // It goes on, and would write if it had got anything before this.
        kill(Pid::from_raw(left.cast_signed()), Signal::SIGCONT).unwrap();
        for _ in 0..5 {
            bench.run(sh("sleep 0.02"));
        }
        assert!(exists(left));
        assert!(!bench.work().join("signal").exists());
        kill(Pid::from_raw(left.cast_signed()), Signal::SIGKILL).unwrap();
        until("it is gone", || !exists(left));
    }
}
