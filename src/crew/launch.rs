//! Making a process, the cheap way where the system lets us.
//!
//! A step gets a whole environment of its own. The standard library takes one a variable at a time,
//! sorts it, and copies it twice more before it starts anything: 28 µs for 35 variables, beside 64 µs
//! for the rest of starting `true`. The environment is kept as the kernel takes it, so `posix_spawn`
//! can be handed it as it is. What its safe wrapper lacks is the step's directory; so a worker's
//! thread parts from the directory of the process (`unshare`) and goes to the step's itself.
//! Where that is forbidden, as in some containers, the standard library does all of it; signals that
//! the runner was started to ignore stay ignored then.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::unistd::{Pid, chdir};

use crate::model::Environment;

/// What a new process is made of.
#[derive(Debug)]
pub(super) struct Blueprint<'b> {
    /// Absolute.
    pub(super) program: &'b Path,
    pub(super) arg0: &'b OsStr,
    pub(super) arguments: &'b [Cow<'b, OsStr>],
    pub(super) cwd: &'b Path,
    pub(super) env: &'b Environment,
    /// Variables in the place of those of the same name in `env`; of two here the later wins.
    pub(super) vars: &'b [(&'b OsStr, Cow<'b, OsStr>)],
    /// Variables of `env` that it does not get.
    pub(super) without: &'b [&'b str],
}

/// Makes processes for the thread that it was made on.
///
/// Each leads a process group of its own, blocks no signal, has an empty standard input and no
/// descriptor of ours but the two files that it writes to.
#[derive(Debug)]
pub struct Launcher {
    way: Way,
    /// It stays on its thread, whose directory is its own.
    here: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Way {
    /// With what every standard input is a copy of.
    OwnDirectory(File),
    Library,
}

impl Launcher {
    /// Returns the best one that there is on this thread, which from now on has a directory apart from
    /// that of the process: `/`.
    pub fn of_this_thread() -> Self {
        let parted = unshare(CloneFlags::CLONE_FS).and_then(|()| chdir("/"));
        let nothing = parted
            .map_err(io::Error::from)
            .and_then(|()| File::open("/dev/null"));
        Self::by(nothing.map_or(Way::Library, Way::OwnDirectory))
    }

    /// Returns one that asks nothing of its thread.
    pub const fn by_library() -> Self {
        Self::by(Way::Library)
    }

    const fn by(way: Way) -> Self {
        Self {
            way,
            here: PhantomData,
        }
    }

    /// Starts a process that writes to these files, and returns its number.
    ///
    /// # Errors
    ///
    /// Those of the system for the directory, the program or the lack of anything; `InvalidInput` for
    /// a NUL where there cannot be one.
    pub(super) fn launch(&self, plan: &Blueprint<'_>, out: File, err: File) -> io::Result<u32> {
        match &self.way {
            Way::OwnDirectory(nothing) => own_directory(plan, nothing, &out, &err),
            Way::Library => library(plan, out, err),
        }
    }
}

fn own_directory(plan: &Blueprint<'_>, nothing: &File, out: &File, err: &File) -> io::Result<u32> {
    let mut files = PosixSpawnFileActions::init()?;
    for (number, file) in (0..).zip([nothing, out, err]) {
        files.add_dup2(file.as_raw_fd(), number)?;
    }
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_pgroup(Pid::from_raw(0))?;
    attributes.set_sigmask(&SigSet::empty())?;
    // What is ignored stays so otherwise: PIPE by our runtime, QUIT where a script has put the runner into
    // the background, HUP under nohup. A step that is asked to end by one of them would not.
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    let words = std::iter::once(plan.arg0)
        .chain(plan.arguments.iter().map(|word| &**word))
        .map(|word| Ok(CString::new(word.as_bytes())?))
        .collect::<io::Result<Vec<_>>>()?;
    let vars = plan.last_vars();
    let own = vars
        .iter()
        .map(|(name, value)| {
            let mut entry = Vec::with_capacity(name.len() + value.len() + 2);
            entry.extend_from_slice(name.as_bytes());
            entry.push(b'=');
            entry.extend_from_slice(value.as_bytes());
            Ok(CString::new(entry)?)
        })
        .collect::<io::Result<Vec<_>>>()?;
    let mut env: Vec<&CStr> = plan
        .env
        .entries()
        .filter(|(name, _)| !plan.replaces(name))
        .map(|(_, entry)| entry)
        .collect();
    env.extend(own.iter().map(CString::as_c_str));

    chdir(plan.cwd)?;
    // Nobody shall find a file system busy because an idle worker stands in it.
    let back = Back;
    let born = posix_spawn(plan.program, &files, &attributes, &words, &env);
    drop(back);
    Ok(born?.as_raw().cast_unsigned())
}

/// Leaves the step's directory.
struct Back;

impl Drop for Back {
    fn drop(&mut self) {
        chdir("/").ok();
    }
}

fn library(plan: &Blueprint<'_>, out: File, err: File) -> io::Result<u32> {
    let env = plan.env.pairs();
    let vars = plan.vars.iter().map(|(name, value)| (*name, &**value));
    let child = Command::new(plan.program)
        .arg0(plan.arg0)
        .args(plan.arguments)
        .current_dir(plan.cwd)
        .env_clear()
        .envs(env.filter(|(name, _)| !plan.is_without(name)))
        .envs(vars)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()?;
    Ok(child.id())
}

impl Blueprint<'_> {
    fn is_without(&self, name: &OsStr) -> bool {
        self.without.iter().any(|other| name == *other)
    }

    /// Whether a variable of the environment gives way.
    fn replaces(&self, name: &OsStr) -> bool {
        self.is_without(name) || self.vars.iter().any(|(other, _)| name == *other)
    }

    /// Of variables with one name the last.
    fn last_vars(&self) -> Vec<(&OsStr, &OsStr)> {
        let is_last = |(at, (name, _)): &(usize, &(&OsStr, Cow<'_, OsStr>))| {
            self.vars[at + 1..].iter().all(|(other, _)| other != name)
        };
        self.vars
            .iter()
            .enumerate()
            .filter(is_last)
            .map(|(_, (name, value))| (*name, &**value))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_variables_with_one_name_the_last_is_kept() {
        let env = Environment::from_pairs([("A".into(), "1".into()), ("B".into(), "2".into())]);
        let (a, c) = (OsStr::new("A"), OsStr::new("C"));
        let vars = [
            (a, Cow::Borrowed(OsStr::new("3"))),
            (c, Cow::Borrowed(OsStr::new("4"))),
            (a, Cow::Borrowed(OsStr::new("5"))),
        ];
        let plan = Blueprint {
            program: Path::new("/bin/true"),
            arg0: OsStr::new("true"),
            arguments: &[],
            cwd: Path::new("/"),
            env: &env,
            vars: &vars,
            without: &["B"],
        };
        let kept = plan.last_vars();
        assert_eq!(kept, [(c, OsStr::new("4")), (a, OsStr::new("5"))]);
        assert!(
            ["A", "B", "C"]
                .iter()
                .all(|name| plan.replaces(OsStr::new(name)))
        );
        assert!(!plan.replaces(OsStr::new("D")));
    }
}
