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
