//! Just enough of Rust's grammar to find the paths in a file: words, `::`, braces, inline modules.

use std::path::Path;

/// A path that a file names, such as `crate::model::StepId` or `std::time::Instant`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    /// Its segments; `self` and `super` are resolved, so it starts with `crate` or with a crate.
    pub(crate) path: Vec<String>,
    /// The line, from 1.
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

/// Returns the path of the module that a file of `src/` holds: `crew/mod.rs` is `["crew"]`.
pub(crate) fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> = file
        .with_extension("")
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    module
}

/// Returns every path of at least two segments that the text names, each branch of a group by itself.
pub(crate) fn paths(module: &[String], text: &str) -> Vec<Named> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < tokens.len() {
        let word = tokens[at].text.as_str();
        let next = |ahead: usize| tokens.get(at + ahead).map(|token| token.text.as_str());
        match word {
            "mod" if next(2) == Some("{") => {
                depth += 1;
                inline.push((tokens[at + 1].text.clone(), depth));
                at += 3;
                continue;
            }
            "{" => depth += 1,
            "}" => {
                if inline.last().is_some_and(|(_, since)| *since == depth) {
                    inline.pop();
                }
                depth -= 1;
            }
            _ if is_word(word) && next(1) == Some("::") => {
                let mut here: Vec<String> = module.to_vec();
                here.extend(inline.iter().map(|(name, _)| name.clone()));
                let mut branches = Vec::new();
                let after = tree(&tokens, at, &[], &mut branches);
                found.extend(branches.into_iter().map(|(path, line)| Named {
                    path: resolved(&here, path),
                    line,
                }));
                at = after;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Reads a path or a group of them from `at`; returns where it ends.
fn tree(
    tokens: &[Token],
    mut at: usize,
    before: &[String],
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let mut path = before.to_vec();
    let line = tokens.get(at).map_or(0, |token| token.line);
    loop {
        match tokens.get(at).map(|token| token.text.as_str()) {
            Some("{") => {
                at += 1;
                while let Some(token) = tokens.get(at) {
                    match token.text.as_str() {
                        "}" => return at + 1,
                        "," => at += 1,
                        _ => at = tree(tokens, at, &path, found),
                    }
                }
                return at;
            }
            Some(word) if is_word(word) || word == "*" => {
                path.push(word.to_owned());
                at += 1;
            }
            _ => break,
        }
        if tokens.get(at).is_none_or(|token| token.text != "::") {
            break;
        }
        at += 1;
    }
    if tokens.get(at).is_some_and(|token| token.text == "as") {
        at += 2;
    }
    if path.len() > before.len() {
        let then = |ahead: usize| tokens.get(at + ahead).map(|token| token.text.as_str());
        // A macro that the crate exports stands at its root, wherever it was written.
        let is_macro = path.len() == 2 && then(0) == Some("!") && then(1) != Some("=");
        // One word alone is a generic function's, as in `collect::<…>`.
        if path.len() > 1 && !is_macro {
            found.push((path, line));
        }
        at
    } else {
        // Not a path after all.
        at + 1
    }
}

fn resolved(here: &[String], path: Vec<String>) -> Vec<String> {
    let up = path.iter().take_while(|word| *word == "super").count();
    let own = usize::from(path.first().is_some_and(|word| word == "self"));
    if up + own == 0 {
        return path;
    }
    let mut whole = vec!["crate".to_owned()];
    whole.extend_from_slice(&here[..here.len() - up]);
    whole.extend_from_slice(&path[up + own..]);
    whole
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits a text into words, `::` and single signs; comments and literals are left out.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => find(&chars, at, |rest| rest[0] == '\n'),
            ('/', Some('*')) => find(&chars, at + 2, |rest| rest.starts_with(&['*', '/'])) + 2,
            ('"', _) => string(&chars, at),
            ('r', Some('"' | '#')) if !is_raw_word(&chars, at) => raw_string(&chars, at + 1),
            // A character has its end nearby; a lifetime has none.
            ('\'', Some('\\')) => find(&chars, at + 3, |rest| rest[0] == '\'') + 1,
            ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at + 3,
            (':', Some(':')) => at + 2,
            (c, _) if c.is_alphanumeric() || c == '_' => find(&chars, at, |rest| {
                !(rest[0].is_alphanumeric() || rest[0] == '_')
            }),
            _ => at + 1,
        }
        .min(chars.len());
        let token: String = chars[at..end].iter().collect();
        let literal =
            token.starts_with(['"', '\'']) || token.starts_with("r\"") || token.starts_with("r#");
        if !token.starts_with("//")
            && !token.starts_with("/*")
            && !literal
            && !token.trim().is_empty()
        {
            tokens.push(Token {
                text: token.clone(),
                line,
            });
        }
        line += token.matches('\n').count();
        at = end;
    }
    tokens
}

fn find(chars: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len())
        .find(|at| stop(&chars[*at..]))
        .unwrap_or(chars.len())
}

fn string(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn is_raw_word(chars: &[char], at: usize) -> bool {
    chars[at + 1] == '#' && chars.get(at + 2).is_some_and(|c| !matches!(c, '#' | '"'))
}

fn raw_string(chars: &[char], from: usize) -> usize {
    let hashes = chars[from..].iter().take_while(|c| **c == '#').count();
    let mut close = vec!['"'];
    close.resize(hashes + 1, '#');
    find(chars, from + hashes + 1, |rest| rest.starts_with(&close)) + close.len()
}

#[test]
fn paths_are_found_whatever_their_spelling() {
    let text = r####"
        //! Not crate::comment::Here.
        use crate::{
            model::{Band, time::{self, Timestamp}},
            store as rest, // not crate::comment::Here either
        };
        use super::Sibling;
        /* nor crate::comment::Here */
        fn one<'a>(text: &'a str) -> char {
            let raw = r##"crate::text::Raw "# not the end"##;
            let plain = "crate::text::Plain \" still";
            let c = '"';
            crate::event::emit(self::inner::call(text), 'x', '\'');
            text.bytes().collect::<std::vec::Vec<_>>()
        }
        mod tests {
            use super::*;
            use super::super::error::Error;
        }
    "####;
    let module = ["crew".to_owned(), "worker".to_owned()];
    let found: Vec<String> = paths(&module, text)
        .into_iter()
        .map(|named| format!("{} {}", named.line, named.path.join("::")))
        .collect();
    assert_eq!(
        found,
        [
            "4 crate::model::Band",
            "4 crate::model::time::self",
            "4 crate::model::time::Timestamp",
            "5 crate::store",
            "7 crate::crew::Sibling",
            "13 crate::event::emit",
            "13 crate::crew::worker::inner::call",
            "14 std::vec::Vec",
            "17 crate::crew::worker::*",
            "18 crate::crew::error::Error",
        ]
    );
}
