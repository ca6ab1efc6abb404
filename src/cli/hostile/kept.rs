//! What is read back of what was kept, or of what other programs wrote.

use super::*;

/// A policy is read from rows that somebody may have changed with another program.
#[test]
fn a_kept_policy_is_one_that_could_have_been_asked_for() {
    let fields: [(&str, &[&str]); 13] = [
        ("on_lost", &["retry", "fail", "hold"]),
        ("grace_ms", &["0", "5000", "18446744073709551615"]),
        ("leave_group", &["true", "false"]),
        ("retries", &["0", "3", "4294967295"]),
        (
            "backoff",
            &[
                r#"{"base_ms":1000,"factor":2.0,"cap_ms":60000}"#,
                r#"{"base_ms":0,"factor":1000000,"cap_ms":0}"#,
                r#"{"base_ms":18446744073709551615,"factor":1.5,"cap_ms":18446744073709551615}"#,
                r#"{"base_ms":5,"factor":0.5,"cap_ms":60}"#,
                r#"{"base_ms":5,"factor":-1e308,"cap_ms":60}"#,
                r#"{"base_ms":50,"factor":2,"cap_ms":5}"#,
            ],
        ),
        ("retry_on", &["[]", "[1,2,255]", "[256]"]),
        ("no_retry_on", &["[75]", "[-1]"]),
        ("timeout_ms", &["1", "null", "18446744073709551615"]),
        ("kill_signal", &["2", "15", "0", "64", "-9", "2147483647"]),
        (
            "expire",
            &["0", "-9223372036854775808", "9223372036854775807"],
        ),
        (
            "limits",
            &[r#"{"gpu":1}"#, r#"{"gpu":0}"#, r#"{"a:b":1}"#, r#"{"":1}"#],
        ),
        ("max_output", &["0", "9223372036854775807", "null"]),
        ("vars", &[r#"{"A":"b"}"#, "{}"]),
    ];
    each(
        "a policy",
        USUAL,
        |dice| {
            let mut bytes = fuzz::object(dice, &fields).to_string().into_bytes();
            if dice.below(3) == 0 {
                fuzz::change(dice, &mut bytes, &[], &[]);
            }
            bytes
        },
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let Some(policy) = Policy::from_json(&text) else {
                return false;
            };
            let again = serde_json::to_string(&policy).unwrap();
            assert_eq!(Policy::from_json(&again), Some(policy.clone()));
            for failed in [0, 1, 2, 7, 1_000, u32::MAX] {
                assert!(policy.backoff.longest(failed) <= policy.backoff.cap);
            }
            for lost in [0, 1, 2, 3, 1_000] {
                let _: crate::model::OnLost = policy.after_loss(lost);
            }
            assert!(policy.limits.values().all(|places| *places > 0));
            true
        },
    );
}

/// What other programs, or other versions of this one, wrote where this one reads numbers.
#[test]
fn numbers_in_json_are_bands_and_shards_or_nothing() {
    for (text, is_band, is_shard) in [
        ("0", true, true),
        ("25", true, true),
        ("26", true, false),
        ("255", true, false),
        ("256", true, false),
        ("2147483647", true, false),
        ("2147483648", false, false),
        ("-1", false, false),
        ("1.0", false, false),
        ("\"1\"", false, false),
        ("null", false, false),
    ] {
        let band = serde_json::from_str::<Band>(text);
        let shard = serde_json::from_str::<ShardId>(text);
        assert_eq!((band.is_ok(), shard.is_ok()), (is_band, is_shard), "{text}");
        assert!(shard.is_err() || shard.unwrap().letter().is_ascii_lowercase());
    }
}
