//! Runners that answer what no runner would.

use serde_json::Value;

use super::live::Answered;
use super::picture::Picture;
use super::{cache, pool, runners};
use crate::ambient::Dice;
use crate::cli::hostile::on_paper;
use crate::fuzz::{self, each};
use crate::model::RunnerId;

/// Numbers, texts and lists where an answer has others.
fn draw(dice: &mut Dice) -> Vec<u8> {
    let fields: [(&str, &[&str]); 18] = [
        (
            "capacity",
            &["8", "18446744073709551615", "\u{1b}[2J", "-1"],
        ),
        ("total", &["0", "\n"]),
        (
            "partitions",
            &[
                r#"[{"shard":0,"depth":3,"first":["a1",null,{}],"head_turn":1e308}]"#,
                "[[]]",
            ],
        ),
        ("counters", &[r#"{"selected":0,"discarded":5}"#, "7"]),
        (
            "crew",
            &[
                r#"{"workers":0,"running":[{"id":"\u202e","running_ms":18446744073709551615,"pid":"\u001b]0;x\u0007"}]}"#,
            ],
        ),
        ("crew", &[r#"{"workers":"x","running":{}}"#]),
        ("steps", &[r#"{"succeeded":-1,"failed":1.5}"#]),
        ("pick", &["stride", "\u{85}", "lottery"]),
        ("clock", &["1e308", "null"]),
        ("band", &["100", "4294967295"]),
        ("set_by", &["[0,25]", "[26]", "[255]"]),
        ("seed", &["null", "7"]),
        ("at", &["2027-01-15T08:00:00Z", "\u{1b}[31m"]),
        ("tally_age_ms", &["18446744073709551615"]),
        (
            "shards",
            &[
                r#"[{"shard":0,"band":1,"due":1,"keys":1,"part":"serves","slots":9,"tallied_ms_ago":null,"error":"\r\n"}]"#,
                "[]",
            ],
        ),
        (
            "keys",
            &[
                r#"[{"key":"\u001b","weight":-1.0,"oldest_on":0,"oldest_since":"","oldest_age_ms":null,"count":0,"counts":[[0,1]],"expected_share":7.5,"pass":null,"slots":0,"plan_share":-1.0,"turns":[1e308],"first_slot_on":null,"repeat_first":null,"repeat_share":2.0}]"#,
                "[]",
            ],
        ),
        (
            "slots",
            &[r#"[{"key":"\u202e","turn":1e308,"shard":null}]"#, "[]"],
        ),
        ("repeat", &["null"]),
    ];
    // A plan needs all of its fields to be one.
    let mut object = fuzz::object(dice, &fields);
    if dice.below(2) == 0 {
        for (name, values) in fields {
            let text = fuzz::one_of(dice, values);
            object[name] = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        }
        for name in ["runner", "pid"] {
            object[name] = Value::Null;
        }
    }
    if dice.below(4) == 0 {
        object = serde_json::json!([object]);
    }
    object.to_string().into_bytes()
}

#[test]
fn whatever_a_runner_answers_is_shown_in_safe_lines() {
    each("what a runner answers", 1_500, draw, |bytes| {
        let answer: Value = serde_json::from_slice(bytes).unwrap();
        let plan: Option<Picture> = serde_json::from_value(answer.clone()).ok();
        let crew = answer["crew"].clone();
        let one = Answered {
            runner: RunnerId::new(7),
            card: None,
            answer,
        };
        for width in [None, Some(40)] {
            let shown = on_paper(width, |context| {
                cache::print(context, &one, &crew)?;
                context
                    .screen
                    .table(&runners::step_table(std::slice::from_ref(&one)))?;
                let table = runners::runner_table(context, std::slice::from_ref(&one), &[]);
                context.screen.table(&table)?;
                context
                    .screen
                    .table(&pool::table(std::slice::from_ref(&one)))?;
                context
                    .screen
                    .json(&serde_json::json!({ "answer": one.answer }))?;
                plan.iter()
                    .try_for_each(|plan| super::plan_tables::print(context, "planned", plan))
            });
            let acts = |letter: char| {
                let moves = letter.is_control() && !['\n', '\t'].contains(&letter);
                moves || ('\u{202a}'..='\u{202e}').contains(&letter)
            };
            assert!(!shown.contains(acts), "{shown:?}");
        }
        plan.is_some()
    });
}
