//! A step as an object: a line of `--from-ndjson`, or a step of a flow file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::options::{Said, word};
use crate::model::Command;

/// The fields of an object in the order in which they stand; one may come twice.
pub(super) struct Fields(pub(super) Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Reads what an object says of a step: the words of the options, and `command`. Words may be joined
/// by `_` instead of `-`, and lists have their plural.
///
/// # Errors
///
/// What is wrong, with the name of the field.
pub(super) fn read(fields: Fields) -> Result<(Said, Option<Command>), String> {
    let mut said = Said::default();
    let mut command = None;
    let mut seen = BTreeSet::new();
    for (field, value) in fields.0 {
        let option = field.replace('_', "-");
        let option = match option.as_str() {
            "tags" => "tag",
            "limits" => "limit",
            other => other,
        };
        let wrong = |why: String| format!("{field}: {why}");
        if !seen.insert(option.to_owned()) {
            return Err(wrong("it comes twice".to_owned()));
        }
        if option == "command" {
            command = Some(read_command(value).map_err(wrong)?);
        } else {
            said.take(option, value).map_err(wrong)?;
        }
    }
    let dues = [
        said.options.delay.is_some(),
        said.options.at.is_some(),
        said.ties.hold,
    ];
    if dues.into_iter().filter(|said| *said).count() > 1 {
        return Err("only one of delay, at and hold can be meant".to_owned());
    }
    Ok((said, command))
}

/// A text is a shell line, a list an exact argv.
fn read_command(value: Value) -> Result<Command, String> {
    let command = match value {
        Value::Array(words) => {
            let words: Vec<OsString> = words
                .into_iter()
                .map(|one| word(one).map(OsString::from))
                .collect::<Result<_, _>>()?;
            Command::Argv(words)
        }
        line @ (Value::String(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Object(_)) => Command::Shell(word(line)?.into()),
    };
    let empty = match &command {
        Command::Shell(line) => line.is_empty(),
        Command::Argv(words) => words.first().is_none_or(|program| program.is_empty()),
    };
    if empty {
        return Err("it is empty".to_owned());
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        read(serde_json::from_str(json).unwrap())
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn what_is_wrong_is_told_with_its_field() {
        for (json, said) in [
            (r#"{"colour": 1}"#, "colour: there is no such field"),
            (r#"{"timeout": "0,5s"}"#, "timeout: \"0,5s\""),
            (r#"{"timeout": null}"#, "timeout: it is a word or a number"),
            (r#"{"key": "a", "key": "b"}"#, "key: it comes twice"),
            (r#"{"kill_signal": 2, "kill-signal": 2}"#, "comes twice"),
            (r#"{"tags": {"a": "b"}}"#, "tags: it is a word or a list"),
            (r#"{"hold": "yes"}"#, "hold: it is true or false"),
            (r#"{"hold": true, "delay": 3}"#, "only one of"),
            (r#"{"command": []}"#, "command: it is empty"),
            (r#"{"command": ""}"#, "command: it is empty"),
            (r#"{"command": ["a", ["b"]]}"#, "command: it is a word"),
            ("{\"name\": \"a\\u0000b\"}", "name: there is a NUL"),
        ] {
            assert!(refused(json).contains(said), "{json}: {:?}", refused(json));
        }
    }

    #[test]
    fn the_nearer_word_counts_and_lists_are_joined() {
        let read = |json| read(serde_json::from_str(json).unwrap()).unwrap().0;
        let base = read(r#"{"key": "a", "tags": ["x"], "delay": "1h", "limits": {"gpu": 2}}"#);
        let mut own = read(r#"{"key": "b", "tags": "y", "hold": true}"#);
        own.fall_back(&base);
        assert_eq!(own.options.key.unwrap().as_str(), "b");
        assert_eq!(own.options.tag, ["x", "y"]);
        assert_eq!(
            own.options.limit[0].clone().into_option().unwrap().places,
            2
        );
        assert!(own.ties.hold && own.options.delay.is_none());
    }
}
