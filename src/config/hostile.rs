//! Configurations that nobody means.

use super::*;
use crate::ambient::Dice;
use crate::fuzz::{self, each};

const SAMPLES: [&[u8]; 12] = [
    b"workers = 8\nshards = 4\nplacement = \"spread\"\npick = 'lottery'\n",
    b"default_band = \"urgent\"\nbands = { urgent = 10, nightly = 500 }\n",
    b"[bands]\nurgent = 0x0a\nlow = 2_147_483_647\n",
    b"grace = 30\nheartbeat_ms = 1\ncolor = \"never\"\n",
    b"grace = '1m30s'\ninline_output_bytes = 16777216\nstore = '~/queue'\n",
    b"store = \"a\\u0000b\"\n",
    b"store = \"\\u001b[2J\\n\"\n",
    b"workers = 99999999999999999999\n",
    b"workers = 0o7\nworkers = 1\n",
    b"a.a.a.a.a = 1\n",
    b"bands = [[[[[[[[[[[[[[[[[[[[[[[[",
    b"# only a remark\r\n",
];
const WORDS: [&[u8]; 10] = [
    b"workers = ",
    b"shards = 26\n",
    b"[bands]\n",
    b"urgent = 5\n",
    b"default_band = 7\n",
    b"grace = '0'\n",
    b"\"",
    b"1\n",
    b"-1\n",
    b"min_gap_ms = 3600000\n",
];

fn draw(dice: &mut Dice) -> Vec<u8> {
    if dice.below(2) == 0 {
        return fuzz::mutant(dice, &SAMPLES, &WORDS);
    }
    let fields: [(&str, &[&str]); 12] = [
        ("workers", &["1", "4096", "4097", "0", "\"8\""]),
        ("shards", &["1", "26", "27"]),
        ("placement", &["key", "spread", "both"]),
        ("pick", &["stride", "lottery"]),
        ("durability", &["normal", "full"]),
        ("default_band", &["100", "urgent", "2147483648"]),
        ("color", &["auto", "always", "never", "true"]),
        ("heartbeat_ms", &["1", "3600000", "0"]),
        ("min_gap_ms", &["0", "3600001"]),
        ("inline_output_bytes", &["0", "16777216", "16777217"]),
        ("grace", &["5", "1d", "1441m", "250ms"]),
        (
            "bands",
            &[
                r#"{"urgent":1}"#,
                r#"{"1":1}"#,
                r#"{"a b":1}"#,
                r#"{"a":-1}"#,
            ],
        ),
    ];
    let mut bytes = toml::to_string(&fuzz::object(dice, &fields))
        .unwrap_or_default()
        .into_bytes();
    if dice.below(4) == 0 {
        fuzz::change(dice, &mut bytes, &SAMPLES, &WORDS);
    }
    bytes
}

fn is_sound(settings: &Settings) {
    assert!(settings.store.is_absolute());
    assert!((1..=MAX_WORKERS).contains(&settings.workers()));
    assert!((1..=ShardId::MAX_SHARDS).contains(&settings.shards()));
    assert!(settings.default_band <= Band::WORST);
    assert!(settings.bands.values().all(|band| *band <= Band::WORST));
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    assert!(settings.bands.keys().all(|name| name.chars().all(plain)));
    assert!((1..=knob::MAX_WAIT_MS).contains(&settings.heartbeat.millis()));
    assert!(settings.min_gap.millis() <= knob::MAX_WAIT_MS);
    assert!(settings.inline_output_bytes <= knob::MAX_INLINE_BYTES);
    assert!(settings.grace.millis() <= 86_400_000);
}

/// Writes settings down as a file that says the same.
fn file_of(settings: &Settings) -> String {
    let mut table = toml::Table::new();
    let mut bands = toml::Table::new();
    for shown in settings.shown() {
        let number = shown.value.parse::<i64>().map(toml::Value::Integer);
        let value = number.unwrap_or_else(|_| shown.value.into());
        match shown.key.strip_prefix("bands.") {
            Some(name) => drop(bands.insert(name.to_owned(), value)),
            None => drop(table.insert(shown.key, value)),
        }
    }
    table.insert("bands".to_owned(), bands.into());
    toml::to_string(&table).unwrap()
}

#[test]
fn a_configuration_is_sound_settings_that_read_back_or_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("config.toml");
    let around = Surroundings {
        vars: BTreeMap::from([("HOME".into(), root.path().into())]),
        cwd: None,
        cpus: Cpus::of(2),
        uid: 0,
    };
    let flags = Flags {
        config: Some(path.clone()),
        ..Flags::default()
    };
    let load = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Settings::load(&flags, &around)
    };
    each("a configuration", 2_000, draw, |bytes| match load(bytes) {
        Ok(settings) => {
            is_sound(&settings);
            let text = file_of(&settings);
            let again = load(text.as_bytes()).unwrap();
            let values = |settings: &Settings| {
                let shown = settings.shown().into_iter();
                shown
                    .map(|shown| (shown.key, shown.value))
                    .collect::<Vec<_>>()
            };
            assert_eq!(values(&again), values(&settings), "{text}");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            let text = error.to_string();
            assert!(
                !text.contains(char::is_control) && text.len() < 32_768,
                "{text:?}"
            );
            assert!(text.starts_with(&*path.to_string_lossy()), "{text}");
            false
        }
    });
}
