//! A large tree of real files, a step each.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Ran, Sandbox};

/// Returns compressed files below a directory.
fn compressed(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        let path = entry.path();
        if kind.is_dir() {
            compressed(&path, found);
        } else if kind.is_file() && path.extension().is_some_and(|end| end == "gz") {
            found.push(path);
        }
    }
}

/// Makes compressed files, in as many directories as packages would have.
fn make_files(below: &Path, count: usize) -> Vec<PathBuf> {
    (0..count)
        .map(|number| {
            let dir = below.join(format!("package-{}", number % 40));
            std::fs::create_dir_all(&dir).unwrap();
            let path = dir.join(format!("it's \"{number}\" $HOME.gz"));
            let mut gzip = Command::new("gzip")
                .stdin(Stdio::piped())
                .stdout(std::fs::File::create(&path).unwrap())
                .spawn()
                .unwrap();
            let text = format!("text {number}\n").repeat(number % 300);
            let mut stdin = gzip.stdin.take().unwrap();
            stdin.write_all(text.as_bytes()).unwrap();
            drop(stdin);
            assert!(gzip.wait().unwrap().success());
            path
        })
        .collect()
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_str().unwrap().replace('\'', "'\\''"))
}

#[test]
fn a_tree_of_a_thousand_files_gives_what_a_loop_over_it_gives() {
    let sandbox = Sandbox::with_shards(2);
    let wanted = crate::steps(1_000);
    let mut files = Vec::new();
    compressed(Path::new("/usr/share/doc"), &mut files);
    files.retain(|path| path.to_str().is_some_and(|path| !path.contains('\n')));
    files.sort();
    files.truncate(wanted);
    if files.len() < wanted {
        files = make_files(&sandbox.work("tree"), wanted);
    }
    let line = |file: &PathBuf| format!("zcat {} | sha256sum", quoted(file));

    // The direct loop: one shell, a line a file.
    let script: Vec<String> = files.iter().map(line).collect();
    let direct = Ran::of(Command::new("sh").args(["-c", &script.join("\n")])).expect(0);
    let direct: Vec<String> = direct.text().lines().map(str::to_owned).collect();
    assert_eq!(direct.len(), files.len());

    let mut packages: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        let package = file.parent().unwrap().file_name().unwrap().as_bytes();
        packages.entry(package).or_default().push(at);
    }
    let mut ids = vec![String::new(); files.len()];
    for (package, at) in &packages {
        let key = str::from_utf8(package).unwrap();
        let lines: Vec<String> = at.iter().map(|at| line(&files[*at])).collect();
        for (at, id) in at.iter().zip(sandbox.enqueue_lines(&["-k", key], &lines)) {
            ids[*at] = id;
        }
    }
    sandbox.drain(4).expect(0);
    assert_eq!(sandbox.count("succeeded"), files.len() as u64);
    for (at, id) in ids.iter().enumerate() {
        let logs = sandbox.fairq(["logs", id]).expect(0);
        assert_eq!(logs.text().trim_end(), direct[at], "{id} {:?}", files[at]);
    }
}
