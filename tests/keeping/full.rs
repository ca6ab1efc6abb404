//! A disk that is full: it is said, and work goes on when there is space.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::Signal;

use crate::common::{Ran, Sandbox, lines, until};

/// The sizes of a file system that is small enough to be filled: at most this.
const SMALL: u64 = 256 << 20;

/// A small file system, and how programs come to it.
struct Small {
    /// Where it is, for programs that [`Self::program`] made.
    dir: PathBuf,
    /// Who keeps it, in a namespace of its own.
    keeper: Option<Child>,
    mounted: bool,
}

/// How one may be had; else why not.
type Way = fn(&Sandbox) -> Result<Small, String>;

impl Small {
    /// Returns one, by the first way that there is: a mount, a mount in a namespace of its own, or the
    /// file system for shared memory where that is small, as in most containers. `FAIRQ_TEST_DISK` can
    /// name a single one: `mount`, `apart` or `shm`. Otherwise the reasons why there is none.
    fn find(sandbox: &Sandbox) -> Result<Self, String> {
        let wanted = std::env::var("FAIRQ_TEST_DISK").ok();
        let ways: [(&str, Way); 3] = [
            ("mount", Self::mount),
            ("apart", Self::apart),
            ("shm", Self::shared_memory),
        ];
        let mut reasons = Vec::new();
        for (name, way) in ways {
            if wanted.as_deref().is_none_or(|wanted| wanted == name) {
                match way(sandbox) {
                    Ok(small) => return Ok(small),
                    Err(reason) => reasons.push(format!("{name}: {}", reason.trim())),
                }
            }
        }
        Err(reasons.join("; "))
    }

    fn mount(sandbox: &Sandbox) -> Result<Self, String> {
        let dir = sandbox.work("small");
        fs::create_dir_all(&dir).unwrap();
        let ran = Ran::of(Command::new("mount").args(TMPFS).arg(&dir));
        (ran.code == 0).then_some(()).ok_or(ran.err)?;
        Ok(Self {
            dir,
            keeper: None,
            mounted: true,
        })
    }

    fn apart(sandbox: &Sandbox) -> Result<Self, String> {
        let dir = sandbox.work("small");
        fs::create_dir_all(&dir).unwrap();
        let line = "mount \"$@\" && echo ready >ready && exec sleep 1000";
        let mut unshare = sandbox.program("unshare");
        unshare.args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            line,
            "sh",
        ]);
        let said = sandbox.work("said");
        unshare.args(TMPFS).arg(&dir);
        unshare.stderr(fs::File::create(&said).unwrap());
        let mut keeper = unshare.spawn().map_err(|error| error.to_string())?;
        let mut code = None;
        until("it is mounted", || {
            code = keeper.try_wait().unwrap();
            code.is_some() || sandbox.work("ready").exists()
        });
        if code.is_some() {
            return Err(fs::read_to_string(&said).unwrap());
        }
        Ok(Self {
            dir,
            keeper: Some(keeper),
            mounted: false,
        })
    }

    fn shared_memory(_: &Sandbox) -> Result<Self, String> {
        let shm = Path::new("/dev/shm");
        let about = nix::sys::statvfs::statvfs(shm).map_err(|error| error.to_string())?;
        let size = about.blocks() * about.fragment_size();
        if size > SMALL {
            return Err(format!("{size} bytes are too many to be filled"));
        }
        let dir = shm.join(format!("fairq-{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        Ok(Self {
            dir,
            keeper: None,
            mounted: false,
        })
    }

    /// Returns a program that sees it.
    fn program(&self, sandbox: &Sandbox, program: &str) -> Command {
        let Some(keeper) = &self.keeper else {
            return sandbox.program(program);
        };
        let mut nsenter = sandbox.program("nsenter");
        nsenter
            .args(["--user", "--mount", "--preserve-credentials"])
            .arg(format!("--target={}", keeper.id()))
            .arg(format!("--wd={}", sandbox.work("").display()))
            .arg(program);
        nsenter
    }
}

/// What a small file system is mounted as.
const TMPFS: [&str; 5] = ["-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"];

impl Drop for Small {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.kill().ok();
            keeper.wait().ok();
        } else if self.mounted {
            Command::new("umount")
                .arg("-l")
                .arg(&self.dir)
                .status()
                .ok();
        } else {
            fs::remove_dir_all(&self.dir).ok();
        }
    }
}

#[test]
fn a_full_disk_is_said_and_work_goes_on_when_there_is_space() {
    let sandbox = Sandbox::new();
    let small = match Small::find(&sandbox) {
        Ok(small) => small,
        Err(reasons) => {
            eprintln!("LEFT OUT: no disk could be filled here. {reasons}");
            return;
        }
    };
    let store = small.dir.join("store");
    let fairq = |args: &[&str]| {
        let mut command = small.program(&sandbox, env!("CARGO_BIN_EXE_fairq"));
        command.arg("--store").arg(&store).args(args);
        command
    };
    let on = |args: &[&str]| Ran::of(&mut fairq(args));
    let count = |state: &str| {
        let counts = on(&["status", "--json"]).expect(0).json();
        counts["counts"][state].as_u64().unwrap_or(0)
    };
    on(&["init", "--shards", "1"]).expect(0);
    on(&[
        "enqueue",
        "until test -e go; do sleep 0.01; done; echo ran >>ran",
    ])
    .expect(0);
    let said = sandbox.work("said-by-the-runner");
    let log = fs::File::create(&said).unwrap();
    let mut runner = fairq(&["run", "--workers", "1"]);
    runner.stdout(log.try_clone().unwrap()).stderr(log);
    let mut runner = runner.spawn().unwrap();
    until("it runs", || count("running") == 1);
    let ballast = small.dir.join("ballast");
    let ballast = ballast.to_str().unwrap();
    let mut filler = small.program(&sandbox, "sh");
    filler.args(["-c", "cat /dev/zero >\"$1\"", "sh", ballast]);
    assert_ne!(Ran::of(&mut filler).code, 0, "it was not filled");
    // What was not stored is said with the reason.
    let big = "x".repeat(60_000);
    for _ in 0..3 {
        let ran = on(&["enqueue", &big]).expect(75);
        assert!(ran.err.contains("no space left"), "{}", ran.err);
    }
    fs::write(sandbox.work("go"), "").unwrap();
    until("it has ended", || sandbox.work("ran").exists());
    // The runner tries again and again to record that, and says so now and then.
    until("the runner has said so", || {
        fs::read_to_string(&said).unwrap().contains("no space left")
    });
    Ran::of(small.program(&sandbox, "rm").arg(ballast)).expect(0);
    until("that is recorded", || count("succeeded") == 1);
    on(&["enqueue", "echo ran >>ran"]).expect(0);
    until("it goes on", || count("succeeded") == 2);
    let pid = nix::unistd::Pid::from_raw(runner.id().cast_signed());
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    let code = runner.wait().unwrap();
    let said = fs::read_to_string(&said).unwrap();
    assert!(code.success() && said.lines().count() < 50, "{said}");
    assert_eq!(lines(&sandbox.work("ran")), ["ran"; 2]);
    on(&["doctor", "--full"]).expect(0);
}
