//! What cannot be started, and how it is said.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use fairq::crew::child::StartError;
use fairq::model::Command;
use fairq::model::Stream;

use crate::support::*;

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
            reason.contains(&gone) && reason.contains("No such file"),
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
    assert!(reason.contains("Not a directory"), "{reason}");
}

#[test]
fn what_cannot_be_run_is_named_with_its_error() {
    let mut bench = Bench::new();
    fs::write(bench.work().join("data"), "").unwrap();
    bench.script("script", "#!/no/such/interpreter\n");
    for (words, parts) in [
        (
            &["no-such-program"][..],
            ["no-such-program", "No such file"],
        ),
        (&["/no/such/program"], ["/no/such/program", "No such file"]),
        (&["./data"], ["/work/./data", "Permission denied"]),
        (&["./data/x"], ["/work/./data/x", "Not a directory"]),
        (&["."], ["\".\"", "No such file"]),
        (&["/"], ["cannot run /", "Permission denied"]),
        (&[""], ["empty", "No such file"]),
        (&["./script"], ["interpreter", "No such file"]),
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
    assert!(reason.contains("Argument list too long"), "{reason}");
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
