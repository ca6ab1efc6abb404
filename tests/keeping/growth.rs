//! What grows is given back, and what steps make is as private as the runner makes it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common::{Ran, Sandbox, until};
use crate::kit::{everything, healthy};

/// Returns how many bytes all files below a directory have.
fn size(dir: &Path) -> u64 {
    let files = everything(dir).into_iter();
    // A runner that works makes and removes files meanwhile.
    files
        .filter_map(|path| path.symlink_metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|about| about.len())
        .sum()
}

#[test]
fn forgetting_gives_the_space_back_while_a_runner_works() {
    const STEPS: usize = 3000;
    let sandbox = Sandbox::with_shards(1);
    let _runner = sandbox.runner(&["--workers", "1", "-q"]);
    // Wide ones that are over at once: cancelled before they may start.
    let wide = format!("true {}", "x".repeat(3000));
    sandbox.enqueue_lines(&["-k", "wide", "--hold"], &vec![wide; STEPS]);
    sandbox.fairq(["cancel", "-k", "wide"]).expect(0);
    for _ in 0..5 {
        sandbox.enqueue(["-k", "large", "head -c 400000 /dev/zero"]);
    }
    until("all is done", || sandbox.count("succeeded") == 5);
    let full = size(&sandbox.store());
    assert!(full > 10_000_000, "{full}");
    sandbox
        .fairq(["clean", "-k", "wide", "-k", "large"])
        .expect(0);
    sandbox.enqueue(["true"]);
    until("it still works", || sandbox.count("succeeded") == 1);
    let pages = crate::kit::shard(&sandbox, 0);
    let file: i64 = crate::kit::one(&pages, "SELECT page_count * 4096 FROM pragma_page_count");
    assert!(file < 500_000, "{file} of {full} are left");
    drop(pages);
    let outputs = size(&sandbox.store().join("output"));
    assert_eq!(outputs, 0);
    healthy(&sandbox);
}

/// Also with the runner that began it: what is set holds for what is over already.
#[test]
fn runners_forget_what_is_older_than_is_to_be_kept_and_nothing_else() {
    const STEPS: usize = 350;
    let sandbox = Sandbox::with_shards(2);
    let line = "head -c 70000 /dev/zero".to_owned();
    sandbox.enqueue_lines(&["-k", "large"], &vec![line; 3]);
    sandbox.enqueue_lines(&["-k", "small", "--hold"], &vec!["true".to_owned(); STEPS]);
    sandbox.fairq(["cancel", "-k", "small"]).expect(0);
    sandbox.enqueue(["--hold", "-n", "waits", "true"]);
    // Nobody has said how long: nothing is forgotten.
    sandbox.drain(2).expect(0);
    assert_eq!(
        (sandbox.count("succeeded"), sandbox.count("cancelled")),
        (3, STEPS as u64)
    );
    assert!(size(&sandbox.store().join("output")) >= 3 * 70_000);
    let keeps = |keep: &str| {
        let mut runner = sandbox.command(["run", "-q", "--workers", "1"]);
        Background(runner.env("FAIRQ_KEEP", keep).spawn().unwrap())
    };
    let runner = keeps("1d");
    let young = sandbox.enqueue(["true"]).remove(0);
    sandbox.fairq(["wait", &young]).expect(0);
    assert_eq!(sandbox.count("succeeded"), 4);
    drop(runner);
    let runner = keeps("1ms");
    until("all is forgotten", || {
        sandbox.count("succeeded") + sandbox.count("cancelled") == 0
    });
    // What ends while it runs goes, too.
    let next = sandbox.enqueue(["true"]).remove(0);
    until("that is forgotten", || {
        sandbox.fairq(["show", &next]).code == 3
    });
    until("its files as well", || {
        size(&sandbox.store().join("output")) == 0
    });
    drop(runner);
    assert_eq!(sandbox.count("held"), 1);
    sandbox.fairq(["doctor", "--repair"]);
    healthy(&sandbox);
}

/// A runner that is told to end when the test has.
struct Background(std::process::Child);

impl Drop for Background {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).ok();
        self.0.wait().ok();
    }
}

/// Where nothing bounds what is kept, whoever runs or looks is told once it is much.
#[test]
fn much_that_is_kept_is_announced_unless_it_is_bounded() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    sandbox.drain(1).expect(0);
    let commands: [&[&str]; 3] = [&["status"], &["doctor"], &["run", "--drain", "-q"]];
    let say = |keep: Option<&str>| -> Vec<bool> {
        let said = commands.iter().map(|args| {
            let mut command = sandbox.command(*args);
            if let Some(keep) = keep {
                command.env("FAIRQ_KEEP", keep);
            }
            let ran = Ran::of(&mut command);
            assert!(!ran.text().contains("notice:"), "{}", ran.text());
            let about = ran.err.matches("150,000 steps that are over are kept");
            let count = about.count();
            assert_eq!(count, ran.err.matches("notice:").count(), "{}", ran.err);
            assert!(count <= 1, "{}", ran.err);
            count == 1
        });
        said.collect()
    };
    assert_eq!(say(None), [false; 3]);
    // As if so many had been run.
    let many = "UPDATE counters SET value = 150000 WHERE name = 'succeeded'";
    crate::kit::harm(&sandbox, 0, many);
    assert_eq!(say(None), [true; 3]);
    assert_eq!(say(Some("forever")), [true; 3]);
    assert_eq!(say(Some("30d")), [false; 3]);
    assert_eq!(sandbox.json(["status"])["kept"]["steps"], 150_000);
}

#[test]
fn a_step_has_the_umask_of_its_runner() {
    for mask in ["022", "077", "027"] {
        let sandbox = Sandbox::with_shards(1);
        let mut put = sandbox.program("sh");
        put.args(["-c", "umask 000; \"$FAIRQ\" enqueue 'umask; touch made'"]);
        Ran::of(&mut put).expect(0);
        let mut run = sandbox.program("sh");
        run.args([
            "-c",
            "umask $1; \"$FAIRQ\" run --drain -q --workers 1",
            "sh",
            mask,
        ]);
        Ran::of(&mut run).expect(0);
        let said = sandbox.fairq(["logs", "a1"]).expect(0).text();
        assert_eq!(said.trim(), format!("0{mask}"));
        let mode = sandbox
            .work("made")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        let mask = u32::from_str_radix(mask, 8).unwrap();
        assert_eq!(mode, 0o666 & !mask);
    }
}

/// A manifest that a power cut took is made again from the shards, whatever else is beside them.
#[test]
fn a_lost_manifest_is_made_again_beside_everything_that_a_store_may_hold() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.enqueue(["--limit", "gpu", "echo > ran; true"]);
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it is done", || sandbox.count("succeeded") == 1);
    assert!(sandbox.store().join("limits.lock").exists());
    runner.kill_hard();
    for way in ["lost", "empty"] {
        let manifest = sandbox.store().join("fairq.toml");
        let before = fs::read_to_string(&manifest).unwrap();
        if way == "lost" {
            fs::remove_file(&manifest).unwrap();
        } else {
            fs::write(&manifest, "").unwrap();
        }
        assert_eq!(sandbox.count("succeeded"), 1, "{way}");
        sandbox.fairq(["limit", "set", "gpu", "2"]).expect(0);
        assert_eq!(fs::read_to_string(&manifest).unwrap(), before, "{way}");
    }
}
