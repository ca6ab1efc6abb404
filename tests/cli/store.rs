//! How a store comes to be, who may enter it, and what it survives.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::common::{Ran, Sandbox, until};

/// Returns every file and directory below one, itself included.
fn everything(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn sixty_processes_may_start_at_once_where_no_store_is() {
    const PROCESSES: usize = 60;
    let sandbox = Sandbox::new();
    // All are held back by one pipe and let go at the same moment.
    let (gate, opener) = std::io::pipe().unwrap();
    let mut children: Vec<_> = (0..PROCESSES)
        .map(|number| {
            let line = "read go; exec \"$FAIRQ\" \"$@\"";
            let key = number.to_string();
            let args: &[&str] = match number % 10 {
                0 => &["init"],
                1 => &["status", "--json"],
                _ => &["enqueue", "-k", &key, "true"],
            };
            let mut shell = sandbox.program("sh");
            shell.args(["-c", line, "sh"]).args(args);
            shell.stdin(gate.try_clone().unwrap());
            shell.stdout(std::process::Stdio::piped());
            shell.stderr(std::process::Stdio::piped());
            shell.spawn().unwrap()
        })
        .collect();
    drop(opener);
    for child in children.drain(..) {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    assert_eq!(sandbox.count("ready"), PROCESSES as u64 * 8 / 10);
    sandbox.drain(2).expect(0);
    assert_eq!(sandbox.count("succeeded"), PROCESSES as u64 * 8 / 10);
}

#[test]
fn nobody_else_may_look_into_a_store() {
    for mask in ["000", "022"] {
        nobody_else_may_look_under(mask);
    }
}

/// A loose mask must not matter.
fn nobody_else_may_look_under(mask: &str) {
    let sandbox = Sandbox::new();
    let copy = sandbox.work("copy");
    let check = |when: &str, below: &Path| {
        for path in everything(below) {
            let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o777;
            let right = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, right, "{mask}, {when}: {}", path.display());
        }
    };
    let mut shell = sandbox.program("sh");
    let large = "head -c 300000 /dev/zero";
    let line = format!(
        "umask {mask}; \"$FAIRQ\" enqueue '{large}; until test -e go; do sleep 0.01; done'"
    );
    Ran::of(shell.args(["-c", &line])).expect(0);
    check("after enqueue", &sandbox.store());
    let mut shell = sandbox.program("sh");
    let mut run = shell
        .args([
            "-c",
            &format!("umask {mask}; exec \"$FAIRQ\" run --workers 2 -q"),
        ])
        .spawn()
        .unwrap();
    until("it runs", || sandbox.count("running") == 1);
    check("while it runs", &sandbox.store());
    fs::write(sandbox.work("go"), "").unwrap();
    sandbox.fairq(["wait", "a1", "b1"]);
    until("it is recorded", || sandbox.count("succeeded") == 1);
    check("with a large output", &sandbox.store());
    let line = format!("umask {mask}; exec \"$FAIRQ\" backup copy");
    Ran::of(sandbox.program("sh").args(["-c", &line])).expect(0);
    check("a copy", &copy);
    let pid = i32::try_from(run.id()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    assert!(run.wait().unwrap().success());
    check("afterwards", &sandbox.store());
}

#[test]
fn a_loose_store_is_warned_of_and_left_as_it_is() {
    let sandbox = Sandbox::with_shards(1);
    let loose = fs::Permissions::from_mode(0o755);
    fs::set_permissions(sandbox.store(), loose).unwrap();
    let ran = sandbox.fairq(["enqueue", "true"]).expect(0);
    assert_eq!(ran.text(), "a1\n");
    assert!(ran.err.starts_with("warning: "), "{}", ran.err);
    assert!(ran.err.contains("0755"), "{}", ran.err);
    let mode = sandbox.store().metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o755);
}

#[test]
fn what_is_beside_the_databases_may_be_lost() {
    let sandbox = Sandbox::with_shards(2);
    for key in ["a", "b", "c"] {
        sandbox.enqueue(["-k", key, "echo done"]);
    }
    sandbox.drain(1).expect(0);
    sandbox.enqueue(["-k", "d", "echo later"]);
    // A runner that is killed leaves its folder.
    let runner = sandbox.runner(&["--workers", "1"]);
    until("all is done", || sandbox.count("succeeded") == 4);
    runner.kill_hard();
    let beside: Vec<PathBuf> = everything(&sandbox.store())
        .into_iter()
        .filter(|path| path.is_file())
        .filter(|path| !path.file_name().unwrap().to_str().unwrap().contains(".db"))
        .collect();
    assert!(beside.len() > 3, "{beside:?}");
    let mut done = 4;
    for truncate in [true, false] {
        for path in &beside {
            // Runners tidy up what dead ones left: a file may be gone by now.
            if truncate && path.exists() {
                fs::write(path, "").unwrap();
            } else if path.exists() {
                fs::remove_file(path).unwrap();
            }
            let what = format!("{} truncated: {truncate}", path.display());
            assert_eq!(sandbox.count("succeeded"), done, "{what}");
            let ran = sandbox.fairq(["enqueue", "-k", "e", "echo more"]);
            assert_eq!(ran.code, 0, "{what}: {}", ran.err);
            let ran = sandbox.drain(1);
            assert_eq!(ran.code, 0, "{what}: {}", ran.err);
            done += 1;
            assert_eq!(sandbox.count("succeeded"), done, "{what}");
        }
    }
    for dir in ["output", "runners"] {
        fs::remove_dir(sandbox.store().join(dir)).unwrap();
        sandbox.enqueue(["-k", "f", "head -c 300000 /dev/zero"]);
        let ran = sandbox.drain(1);
        assert_eq!(ran.code, 0, "{dir}: {}", ran.err);
    }
}

#[test]
fn the_project_store_is_found_upwards_and_named() {
    let sandbox = Sandbox::new();
    let deep = sandbox.work("project/src/deep");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(sandbox.work("project/.fairq")).unwrap();
    let here = |args: &[&str]| Ran::of(sandbox.command(args).current_dir(&deep));
    here(&["enqueue", "true"]).expect(0);
    assert!(sandbox.work("project/.fairq/fairq.toml").exists());
    assert!(!sandbox.store().exists());
    let status = here(&["status", "--json"]).expect(0).json();
    let store = status["store"].as_str().unwrap().to_owned();
    assert_eq!(Path::new(&store), sandbox.work("project/.fairq"));
    assert!(here(&["status"]).err.contains(&store));
    // An option wins over a variable, a variable over the project.
    let run = |variable: &str, args: &[&str]| {
        let mut command = sandbox.command(args);
        command.current_dir(&deep).env("FAIRQ_STORE", variable);
        let status = Ran::of(&mut command).expect(0).json();
        status["store"].as_str().unwrap().to_owned()
    };
    assert_eq!(run("/tmp/v", &["status", "--json"]), "/tmp/v");
    assert_eq!(
        run("/tmp/v", &["--store", "/tmp/o", "status", "--json"]),
        "/tmp/o"
    );
}

#[test]
fn making_a_store_again_changes_nothing() {
    let sandbox = Sandbox::new();
    let made = sandbox
        .fairq(["init", "--shards", "3", "--json"])
        .expect(0)
        .json();
    assert_eq!((&made["made"], &made["shards"]), (&true.into(), &3.into()));
    let again = sandbox.fairq(["init", "--json"]).expect(0).json();
    assert_eq!(
        (&again["made"], &again["shards"]),
        (&false.into(), &3.into())
    );
    sandbox.fairq(["init", "--shards", "3"]).expect(0);
    let ran = sandbox.fairq(["init", "--shards", "4"]).expect(1);
    assert!(ran.err.contains("3 shards"), "{}", ran.err);
    assert!(!sandbox.store().join("shard-3.db").exists());
}
