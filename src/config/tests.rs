use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::*;

/// A home directory of our own, with nothing in it.
struct House {
    root: tempfile::TempDir,
    around: Surroundings,
}

impl House {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for part in ["home", "work/deep/er"] {
            fs::create_dir_all(root.path().join(part)).unwrap();
        }
        let around = Surroundings {
            vars: BTreeMap::from([("HOME".into(), root.path().join("home").into())]),
            cwd: Some(root.path().join("work/deep/er")),
            cpus: Cpus::of(16),
            uid: root.path().metadata().unwrap().uid(),
        };
        Self { root, around }
    }

    fn path(&self, part: &str) -> PathBuf {
        self.root.path().join(part)
    }

    fn var(&mut self, name: &str, value: impl Into<OsString>) {
        self.around.vars.insert(name.into(), value.into());
    }

    fn write(&self, part: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(part);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn default_file(&self, text: &str) -> PathBuf {
        self.write("home/.config/fairq/config.toml", text)
    }

    fn load(&self) -> Result<Settings> {
        Settings::load(&Flags::default(), &self.around)
    }
}

fn flags(knobs: &[(Knob, &str)]) -> Flags {
    Flags {
        knobs: knobs
            .iter()
            .map(|(knob, value)| (*knob, (*value).to_owned()))
            .collect(),
        ..Flags::default()
    }
}

#[test]
fn without_a_word_the_defaults_hold() {
    let house = House::new();
    let settings = house.load().unwrap();
    assert_eq!(settings.store, house.path("home/.local/share/fairq"));
    assert_eq!((settings.workers(), settings.shards()), (16, 4));
    assert_eq!(settings.placement, Placement::Key);
    assert_eq!(settings.pick, Pick::Stride);
    assert_eq!(settings.durability, Durability::Normal);
    assert_eq!(settings.color, ColorChoice::Auto);
    assert_eq!(settings.default_band, Band::DEFAULT);
    assert_eq!(settings.heartbeat, Span::from_millis(1_000));
    assert_eq!(settings.min_gap, Span::from_millis(0));
    assert_eq!(settings.inline_output_bytes, 65_536);
    assert_eq!(settings.grace, Span::from_millis(5_000));
    assert_eq!(settings.config_path(), None);
    for shown in settings.shown() {
        assert_eq!(shown.origin, Origin::Default, "{shown:?}");
    }
}

#[test]
fn a_machine_with_one_cpu_gets_one_shard() {
    let mut house = House::new();
    house.around.cpus = Cpus::of(1);
    let settings = house.load().unwrap();
    assert_eq!((settings.workers(), settings.shards()), (1, 1));
}

#[test]
fn every_key_of_the_file_is_taken_and_remembers_its_line() {
    let house = House::new();
    let path = house.default_file(
        "# a comment\nworkers = 3\nshards = 2\nplacement = 'spread'\npick = \"lottery\"\n\
         durability = \"full\"\ndefault_band = \"nightly\"\ncolor = \"never\"\nheartbeat_ms = 2_500\n\
         min_gap_ms = 0x10\ninline_output_bytes = 0\ngrace = \"1m30s\"\nstore = \"q\"\nkeep = \"30d\"\n\
         [bands]\nurgent = 10\nnightly = 500\n",
    );
    let settings = house.load().unwrap();
    let shown: Vec<_> = settings
        .shown()
        .into_iter()
        .map(|shown| (shown.key, shown.value, shown.origin))
        .collect();
    let store = house.path("home/.config/fairq/q").display().to_string();
    let expected = [
        ("store", store.as_str(), 13),
        ("workers", "3", 2),
        ("shards", "2", 3),
        ("placement", "spread", 4),
        ("pick", "lottery", 5),
        ("durability", "full", 6),
        ("default_band", "500", 7),
        ("color", "never", 8),
        ("heartbeat_ms", "2500", 9),
        ("min_gap_ms", "16", 10),
        ("inline_output_bytes", "0", 11),
        ("grace", "90s", 12),
        ("keep", "2592000s", 14),
        ("bands.nightly", "500", 17),
        ("bands.urgent", "10", 16),
    ]
    .map(|(key, value, line)| {
        let origin = Origin::File {
            path: path.clone(),
            line,
        };
        (key.to_owned(), value.to_owned(), origin)
    });
    assert_eq!(shown, expected);
    assert_eq!(settings.config_path(), Some(path.as_path()));
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file() {
    let mut house = House::new();
    let path = house.default_file("workers = 3\nshards = 3\npick = \"lottery\"\n");
    house.var("FAIRQ_WORKERS", "5");
    house.var("FAIRQ_SHARDS", "5");
    house.var("FAIRQ_GRACE", "");
    let settings = Settings::load(&flags(&[(Knob::Workers, "7")]), &house.around).unwrap();
    assert_eq!((settings.workers(), settings.shards()), (7, 5));
    assert_eq!(settings.pick, Pick::Lottery);
    for (key, origin) in [
        ("workers", "flag --workers".to_owned()),
        ("shards", "environment FAIRQ_SHARDS".to_owned()),
        ("pick", format!("{}:3", path.display())),
        ("grace", "default".to_owned()),
    ] {
        assert_eq!(settings.origin(key).to_string(), origin);
    }
}

/// What says nothing about how long steps are kept.
const NO_KEEP: &[&str] = &[
    "-1",
    "30",
    "true",
    "\"\"",
    "\"0\"",
    "\"0s\"",
    "\"-1d\"",
    "\"Forever\"",
    "\"never\"",
];

/// Lines that no configuration may hold, each with the key that the error has to name.
fn wrong_lines() -> Vec<(String, &'static str)> {
    let number: &[_] = &[
        "-1",
        "1e3",
        "nan",
        "NaN",
        "inf",
        "4.0",
        "\"4\"",
        "true",
        "[4]",
        "{}",
        "01",
        "１",
        "",
        "9223372036854775807",
        "99999999999999999999999999999999999999999999",
    ];
    let word: &[_] = &["0", "-1", "nan", "true", "\"\"", "\"Nothing\"", "[]"];
    let grace: &[_] = &[
        "-1",
        "1.5",
        "nan",
        "true",
        "\"0,5s\"",
        "\"-1s\"",
        "\"2d\"",
        "999999999999",
    ];
    let band: &[_] = &[
        "-1",
        "1.5",
        "nan",
        "\"nobody\"",
        "\"-1\"",
        "2147483648",
        "[]",
    ];
    let store: &[_] = &["3", "\"\"", "\"a\\u0000b\"", "true"];
    let of_keys = [
        ("workers", number),
        ("shards", number),
        ("heartbeat_ms", number),
        ("min_gap_ms", number),
        ("inline_output_bytes", number),
        ("placement", word),
        ("pick", word),
        ("durability", word),
        ("color", word),
        ("grace", grace),
        ("keep", NO_KEEP),
        ("default_band", band),
        ("store", store),
        ("bands.urgent", &["-1", "nan", "\"1\"", "2147483648", "1.0"]),
        ("workers", &["0"]),
        ("shards", &["0"]),
        ("heartbeat_ms", &["0"]),
    ];
    let mut lines: Vec<_> = of_keys
        .into_iter()
        .flat_map(|(key, values)| {
            values
                .iter()
                .map(move |value| (format!("{key} = {value}"), key))
        })
        .collect();
    for (line, key) in [
        ("bands = 3", "bands"),
        ("bands = { 10 = 3 }", "\"10\""),
        ("bands = { \"a b\" = 3 }", "\"a b\""),
        ("wrokers = 3", "\"wrokers\""),
        ("[workers]\nx = 1", "workers"),
    ] {
        lines.push((line.to_owned(), key));
    }
    lines
}

#[test]
fn a_wrong_value_in_the_file_is_refused_with_file_line_and_key() {
    let house = House::new();
    for (text, key) in wrong_lines() {
        let path = house.default_file(&format!("# line one\n\n{text}\n"));
        let error = house.load().expect_err(&text);
        assert_eq!(error.kind(), ErrorKind::Config, "{text}: {error}");
        let place = format!("{}:3: ", path.display());
        assert!(error.what().starts_with(&place), "{text}: {error}");
        assert!(error.what().contains(key), "{text}: {error}");
    }
}

#[test]
fn a_doubled_key_is_refused_at_its_second_place() {
    let house = House::new();
    for (text, line, key) in [
        ("workers = 1\nshards = 1\nworkers = 1\n", 3, "workers"),
        ("[bands]\na = 1\n\na = 2\n", 4, "a = 2"),
        ("[bands]\n[bands]\n", 2, "bands"),
    ] {
        let path = house.default_file(text);
        let error = house.load().expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Config);
        let place = format!("{}:{line}: ", path.display());
        assert!(error.what().starts_with(&place), "{text}: {error}");
        assert!(error.what().contains(key), "{text}: {error}");
    }
}

#[test]
fn a_wrong_variable_is_a_config_error_and_a_wrong_flag_one_of_usage() {
    let mut house = House::new();
    for value in [
        "0",
        "-1",
        "+4",
        " 4",
        "4 ",
        "1_000",
        "４",
        "4.0",
        "NaN",
        "99999999999999999999",
    ] {
        house.var("FAIRQ_WORKERS", value);
        let error = house.load().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.what().starts_with("FAIRQ_WORKERS: "), "{error}");
        // A better value does not hide the wrong one.
        let given = flags(&[(Knob::Workers, "4")]);
        assert!(Settings::load(&given, &house.around).is_err(), "{value:?}");
    }
    house.var("FAIRQ_WORKERS", OsString::from_vec(b"4\xff".to_vec()));
    assert_eq!(house.load().unwrap_err().kind(), ErrorKind::Config);
    house.var("FAIRQ_WORKERS", "4");
    let given = flags(&[(Knob::Color, "sometimes")]);
    let error = Settings::load(&given, &house.around).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.what().contains("--color"), "{error}");
    assert!(error.what().contains("auto, always, never"), "{error}");
}

#[test]
fn only_the_default_file_may_be_missing() {
    let mut house = House::new();
    let missing = house.path("nope.toml");
    let named = Flags {
        config: Some(missing.clone()),
        ..Flags::default()
    };
    let error = Settings::load(&named, &house.around).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.what().contains(missing.to_str().unwrap()), "{error}");
    house.var("FAIRQ_CONFIG", missing.clone());
    assert_eq!(house.load().unwrap_err().kind(), ErrorKind::Config);
    house.var("FAIRQ_CONFIG", "");
    house.load().unwrap();
    // A directory where the default file should be is no missing file.
    fs::create_dir_all(house.path("home/.config/fairq/config.toml")).unwrap();
    assert_eq!(house.load().unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn the_named_file_is_read_instead_of_the_default_one() {
    let mut house = House::new();
    house.default_file("workers = 2\n");
    house.write("xdg/fairq/config.toml", "workers = 3\n");
    house.write("variable.toml", "workers = 4\n");
    house.write("work/deep/er/flag.toml", "workers = 5\n");
    assert_eq!(house.load().unwrap().workers(), 2);
    house.var("XDG_CONFIG_HOME", house.path("xdg"));
    assert_eq!(house.load().unwrap().workers(), 3);
    // Base directories that are relative do not count.
    house.var("XDG_CONFIG_HOME", "xdg");
    assert_eq!(house.load().unwrap().workers(), 2);
    house.var("FAIRQ_CONFIG", house.path("variable.toml"));
    assert_eq!(house.load().unwrap().workers(), 4);
    let named = Flags {
        config: Some("flag.toml".into()),
        ..Flags::default()
    };
    assert_eq!(Settings::load(&named, &house.around).unwrap().workers(), 5);
}

#[test]
fn what_is_no_text_is_no_configuration() {
    let mut house = House::new();
    let path = house.write("bad.toml", b"workers = 1\n# \xff\n");
    house.var("FAIRQ_CONFIG", path.clone());
    let error = house.load().unwrap_err();
    assert_eq!(error.what(), format!("{}:2: not UTF-8", path.display()));
    house.var("FAIRQ_CONFIG", "/dev/zero");
    assert_eq!(house.load().unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn the_store_is_found_in_the_documented_order() {
    let mut house = House::new();
    let path_of = |house: &House| {
        let settings = house.load().unwrap();
        (settings.store.clone(), settings.origin("store").clone())
    };
    house.var("XDG_DATA_HOME", "relative");
    assert_eq!(path_of(&house).0, house.path("home/.local/share/fairq"));
    house.var("XDG_DATA_HOME", house.path("data"));
    assert_eq!(path_of(&house), (house.path("data/fairq"), Origin::Default));
    house.default_file("store = \"~/queue\"\n");
    assert_eq!(path_of(&house).0, house.path("home/queue"));
    // A file of that name is no project; the directory above it is.
    house.write("work/deep/.fairq", "");
    fs::create_dir(house.path("work/.fairq")).unwrap();
    assert_eq!(
        path_of(&house),
        (house.path("work/.fairq"), Origin::Project)
    );
    house.var("FAIRQ_STORE", "rel");
    assert_eq!(path_of(&house).0, house.path("work/deep/er/rel"));
    let named = Flags {
        store: Some("/else/where".into()),
        ..Flags::default()
    };
    let settings = Settings::load(&named, &house.around).unwrap();
    assert_eq!(settings.store, Path::new("/else/where"));
    assert_eq!(settings.origin("store").to_string(), "flag --store");
}

#[test]
fn a_project_that_belongs_to_somebody_else_is_not_entered() {
    let mut house = House::new();
    fs::create_dir(house.path("work/.fairq")).unwrap();
    house.around.uid += 1;
    let error = house.load().unwrap_err();
    assert!(error.what().contains("belongs to another user"), "{error}");
    house.var("FAIRQ_STORE", house.path("work/.fairq"));
    assert_eq!(house.load().unwrap().store, house.path("work/.fairq"));
}

#[test]
fn without_a_home_the_store_must_be_named() {
    let mut house = House::new();
    for home in ["", "not/absolute"] {
        house.var("HOME", home);
        let error = house.load().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.what().contains("HOME"), "{error}");
        assert!(error.hints()[0].contains("--store"));
    }
    house.around.vars.remove(std::ffi::OsStr::new("HOME"));
    house.load().unwrap_err();
    house.var("FAIRQ_STORE", "/q");
    assert_eq!(house.load().unwrap().store, Path::new("/q"));
}

#[test]
fn in_a_deleted_directory_only_relative_paths_fail() {
    let mut house = House::new();
    house.around.cwd = None;
    house.load().unwrap();
    house.var("FAIRQ_STORE", "rel");
    assert!(house.load().unwrap_err().what().contains("deleted"));
}

#[test]
fn an_empty_path_on_the_command_line_is_a_mistake() {
    let house = House::new();
    for named in [
        Flags {
            store: Some(PathBuf::new()),
            ..Flags::default()
        },
        Flags {
            config: Some(PathBuf::new()),
            ..Flags::default()
        },
    ] {
        let error = Settings::load(&named, &house.around).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
}

#[test]
fn a_band_is_a_number_or_a_name_that_is_known() {
    let house = House::new();
    house.default_file("bands = { urgent = 10 }\n");
    let settings = house.load().unwrap();
    assert_eq!(settings.band("urgent").unwrap().get(), 10);
    assert_eq!(settings.band("0").unwrap().get(), 0);
    assert_eq!(settings.band("2147483647").unwrap(), Band::WORST);
    for text in [
        "",
        "-1",
        "+1",
        "1.0",
        "1_0",
        "１",
        "URGENT",
        "2147483648",
        "urgent ",
    ] {
        let error = settings.band(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.what().contains("urgent"), "{error}");
    }
}

#[test]
fn every_knob_has_a_name_of_its_own_and_a_sentence() {
    let mut names: Vec<_> = Knob::ALL.iter().map(|knob| knob.key()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Knob::ALL.len());
    assert_eq!(Knob::HeartbeatMs.variable(), "FAIRQ_HEARTBEAT_MS");
    assert_eq!(Knob::HeartbeatMs.flag(), "--heartbeat-ms");
    for knob in Knob::ALL {
        assert!(knob.doc().contains("default"), "{knob:?}");
    }
}
