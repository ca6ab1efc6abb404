//! Commands as words of a shell: pasted into one, they do the same.
//!
//! Single quotes alone, because every shell reads them alike and takes any byte in them; `$'…'`
//! would be shorter, but dash does not know it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::text;
use crate::model::Command;

/// Words without special characters that bash, dash or zsh read as part of their grammar where a
/// command's name stands.
const RESERVED: [&str; 21] = [
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "end",
    "esac",
    "fi",
    "for",
    "foreach",
    "function",
    "if",
    "in",
    "nocorrect",
    "repeat",
    "select",
    "then",
    "time",
    "until",
    "while",
];

/// Returns a word as a shell would have to be given it, byte for byte.
///
/// The word must not hold a NUL, which no argument can.
pub fn word(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_bytes();
    if is_bare(bytes) {
        return bytes.to_vec();
    }
    let mut quoted = Vec::with_capacity(bytes.len() + 2);
    quoted.push(b'\'');
    for byte in bytes {
        if *byte == b'\'' {
            quoted.extend_from_slice(b"'\\''");
        } else {
            quoted.push(*byte);
        }
    }
    quoted.push(b'\'');
    quoted
}

/// Returns a word for a terminal: pasted, it is the same word, and it shows without acting.
///
/// What must not reach a terminal is written as `"$(printf '\033')"`, which every shell turns back
/// into that byte. A newline stays one: inside quotes it does no harm, and scripts stay legible.
pub fn word_shown(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    if is_bare(bytes) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut quoted = String::new();
    let mut open = Open::Nothing;
    let mut before = None;
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '\'' {
                open.switch(Open::Nothing, &mut quoted);
                quoted.push_str("\\'");
            } else if letter == '\n' || text::is_plain(letter, before) {
                open.switch(Open::Quotes, &mut quoted);
                quoted.push(letter);
            } else {
                open.switch(Open::Printf, &mut quoted);
                let mut buffer = [0; 4];
                octal(letter.encode_utf8(&mut buffer).as_bytes(), &mut quoted);
            }
            before = Some(letter);
        }
        if !chunk.invalid().is_empty() {
            open.switch(Open::Printf, &mut quoted);
            octal(chunk.invalid(), &mut quoted);
            before = None;
        }
    }
    open.switch(Open::Nothing, &mut quoted);
    if quoted.is_empty() {
        quoted.push_str("''");
    }
    quoted
}

fn octal(bytes: &[u8], quoted: &mut String) {
    for byte in bytes {
        quoted.push_str(&format!("\\{byte:03o}"));
    }
}

/// What has been opened and not yet closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Quotes,
    Printf,
}

impl Open {
    fn switch(&mut self, next: Self, quoted: &mut String) {
        if *self == next {
            return;
        }
        quoted.push_str(match self {
            Self::Nothing => "",
            Self::Quotes => "'",
            Self::Printf => "')\"",
        });
        quoted.push_str(match next {
            Self::Nothing => "",
            Self::Quotes => "'",
            Self::Printf => "\"$(printf '",
        });
        *self = next;
    }
}

/// Returns whether no shell sees anything in the word but itself.
fn is_bare(bytes: &[u8]) -> bool {
    let safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./:@_=".contains(byte);
    // A leading `=` is a command's path in zsh, a leading `%` a job.
    bytes.iter().all(safe) && !matches!(bytes.first(), None | Some(b'=' | b'%'))
}

/// Returns whether a word that needs no quotes elsewhere does need them as a command's name.
fn is_taken(word: &OsStr) -> bool {
    // `A=1` would be an assignment.
    word.as_bytes().contains(&b'=') || RESERVED.iter().any(|reserved| word == *reserved)
}

/// Returns the command as a shell would have to be given it, byte for byte.
pub fn command(command: &Command) -> Vec<u8> {
    match command {
        Command::Shell(line) => [shell_prefix(line).as_bytes(), &word(line)].concat(),
        Command::Argv(words) => join(words, b' ', |first, each| {
            let quoted = word(each);
            if first && is_taken(each) && is_bare(each.as_bytes()) {
                [b"'", quoted.as_slice(), b"'"].concat()
            } else {
                quoted
            }
        }),
    }
}

/// Returns the command for a terminal: it can be pasted, and shows without acting. It may have
/// several lines.
pub fn command_shown(command: &Command) -> String {
    match command {
        Command::Shell(line) => format!("{}{}", shell_prefix(line), word_shown(line)),
        Command::Argv(words) => {
            let joined = join(words, b' ', |first, each| {
                let quoted = word_shown(each);
                if first && is_taken(each) && is_bare(each.as_bytes()) {
                    format!("'{quoted}'").into_bytes()
                } else {
                    quoted.into_bytes()
                }
            });
            String::from_utf8_lossy(&joined).into_owned()
        }
    }
}

/// Returns the command in one line for a list: a shell line as it was typed, an argv quoted; what
/// must not be shown is escaped, so this is for eyes and not for pasting.
pub fn summary(command: &Command) -> String {
    match command {
        Command::Shell(line) => text::shown(line.as_bytes()),
        Command::Argv(words) => text::shown(join(words, b' ', |_, each| word(each))),
    }
}

/// A line that begins like an option is one to `sh`, unless the options have ended.
fn shell_prefix(line: &OsStr) -> &'static str {
    if matches!(line.as_bytes().first(), Some(b'-' | b'+')) {
        "sh -c -- "
    } else {
        "sh -c "
    }
}

fn join<W: AsRef<OsStr>>(
    words: &[W],
    between: u8,
    mut each: impl FnMut(bool, &OsStr) -> Vec<u8>,
) -> Vec<u8> {
    let mut joined = Vec::new();
    for (place, word) in words.iter().enumerate() {
        if place > 0 {
            joined.push(between);
        }
        joined.extend(each(place == 0, word.as_ref()));
    }
    joined
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::process;

    use super::*;
    use crate::ambient::Dice;

    /// The shells of this machine among those that the quoting is meant for.
    fn shells() -> Vec<&'static str> {
        let there = |shell: &&str| {
            process::Command::new(shell)
                .args(["-c", ":"])
                .output()
                .is_ok_and(|output| output.status.success())
        };
        let found: Vec<_> = ["sh", "dash", "bash", "zsh", "ash", "ksh", "mksh", "yash"]
            .into_iter()
            .filter(there)
            .collect();
        assert!(found.contains(&"sh"));
        found
    }

    /// What the shell makes of a command line, in a directory where a glob would match.
    fn run(shell: &str, line: &[u8]) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("matched"), "").unwrap();
        let output = process::Command::new(shell)
            .arg("-c")
            .arg(OsStr::from_bytes(line))
            .current_dir(directory.path())
            .env("X", "expanded")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{shell}: {line:?}: {stderr}");
        output.stdout
    }

    fn comes_back(words: &[OsString]) {
        let mut expected = Vec::new();
        for word in words {
            expected.extend_from_slice(word.as_bytes());
            expected.push(0);
        }
        let print = [OsString::from("printf"), "%s\\0".into()];
        let argv = Command::Argv(print.into_iter().chain(words.iter().cloned()).collect());
        let shown = command_shown(&argv);
        let dangerous = |letter: char| letter != '\n' && !text::is_plain(letter, Some('Ω'));
        assert!(!shown.contains(dangerous), "{shown:?}");
        for shell in shells() {
            assert_eq!(run(shell, &command(&argv)), expected, "{shell}: {words:?}");
            assert_eq!(run(shell, shown.as_bytes()), expected, "{shell}: {shown:?}");
        }
    }

    fn os(bytes: &[u8]) -> OsString {
        OsString::from_vec(bytes.to_vec())
    }

    #[test]
    fn words_that_tempt_a_shell_come_back_as_they_were() {
        let words: [&[u8]; 34] = [
            b"",
            b" ",
            b"plain",
            b"Let's go ; \"q\".txt",
            b"'",
            b"''",
            b"'a'",
            b"\\",
            b"\\'",
            b"$X",
            b"${X}",
            b"$(echo no)",
            b"`echo no`",
            b"*",
            b"?atched",
            b"[m]atched",
            b"~",
            b"~root",
            b"a=b",
            b"=ls",
            b"%1",
            b"{a,b}",
            b"!!",
            b"#no",
            b"a&b|c<d>e(f)",
            b"-n",
            b"--",
            b"new\nline",
            b"\n",
            b"ends\n\n",
            b"tab\tcr\r",
            b"\x1b[31m\x07\x7f\x01",
            b"caf\xe9\xff\xfe\xe2\x82",
            "\u{202e}bidi\u{200b}\u{9b} Ω 漢字 ❤\u{fe0f} a\u{fe0f}".as_bytes(),
        ];
        let words = words.map(os);
        comes_back(&words);
        for word in words {
            comes_back(&[word]);
        }
    }

    #[test]
    fn any_bytes_come_back_from_any_shell() {
        let seed = std::env::var("FAIRQ_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(|| Dice::fresh().bits());
        eprintln!("FAIRQ_TEST_SEED={seed}");
        let mut dice = Dice::seeded(seed);
        let tempting = b"'\"\\$`!*?~#&;|<>(){}[]=% \t\n\r-%0n";
        for _ in 0..25 {
            let words: Vec<_> = (0..1 + dice.below(8))
                .map(|_| {
                    let bytes = (0..dice.below(20)).map(|_| {
                        let [any, ..] = dice.bits().to_le_bytes();
                        let place = usize::from(any) % tempting.len();
                        if dice.below(2) == 0 {
                            tempting[place]
                        } else {
                            any.max(1)
                        }
                    });
                    OsString::from_vec(bytes.collect())
                })
                .collect();
            comes_back(&words);
        }
    }

    #[test]
    fn a_word_is_quoted_only_where_it_must_be() {
        let argv = |words: &[&str]| Command::Argv(words.iter().map(OsString::from).collect());
        for (command, shown) in [
            (
                argv(&["make", "-j8", "CC=gcc", "a/b.c"]),
                "make -j8 CC=gcc a/b.c",
            ),
            (argv(&["touch", "Let's go"]), "touch 'Let'\\''s go'"),
            (argv(&["A=1", "if"]), "'A=1' if"),
            (argv(&["if", "A=1"]), "'if' A=1"),
            (argv(&["echo", ""]), "echo ''"),
            (
                argv(&["echo", "\x1b[31m"]),
                "echo \"$(printf '\\033')\"'[31m'",
            ),
            (
                Command::Shell("make | tee log".into()),
                "sh -c 'make | tee log'",
            ),
            (Command::Shell("-x".into()), "sh -c -- -x"),
        ] {
            assert_eq!(command_shown(&command), shown);
        }
        let line = Command::Shell("a |\n b\x1b".into());
        assert_eq!(summary(&line), "a |\\n b\\x1b");
        assert_eq!(summary(&argv(&["touch", "a b"])), "touch 'a b'");
    }

    #[test]
    fn a_command_named_like_a_part_of_the_grammar_is_still_a_command() {
        let directory = tempfile::tempdir().unwrap();
        let path = std::env::join_paths(
            std::iter::once(directory.path().to_owned())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        )
        .unwrap();
        let script = |name: &str| {
            use std::os::unix::fs::symlink;
            symlink("/bin/echo", directory.path().join(name)).unwrap();
        };
        for name in RESERVED.iter().copied().chain(["A=1"]) {
            script(name);
            let argv = Command::Argv(vec![name.into(), "ran".into()]);
            for shell in shells() {
                let output = process::Command::new(shell)
                    .arg("-c")
                    .arg(command_shown(&argv))
                    .env("PATH", &path)
                    .output()
                    .unwrap();
                assert_eq!(output.stdout, b"ran\n", "{shell}: {name}: {output:?}");
            }
        }
    }

    #[test]
    fn a_shell_line_that_looks_like_an_option_is_run() {
        let line = Command::Shell("-x; printf ran".into());
        for shell in shells() {
            assert_eq!(run(shell, &command(&line)), b"ran", "{shell}");
        }
    }
}
