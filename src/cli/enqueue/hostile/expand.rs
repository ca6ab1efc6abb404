//! Arrays and parameters, and how large a step may become by them.

use super::*;

#[test]
fn arrays_and_parameters_expand_to_what_they_say_or_are_refused() {
    let many = "1,".repeat(40_000);
    let values = format!("x={}", "ab,".repeat(30_000));
    let samples = [
        "0-99",
        "1,5,9",
        "0-10:2",
        "0-18446744073709551615",
        "0-18446744073709551615:18446744073709551615",
        "5-1",
        "1:0",
        "0-9999999",
        "0-10000000",
        "18446744073709551615",
        "18446744073709551616",
        "x=1,2,3",
        "lr=0.1,0.01",
        "FAIRQ_X=1",
        "1x=2",
        "x=",
        "x",
        "=",
        "x=,,,",
        &many,
        &values,
    ];
    let pieces = [
        "0",
        "-",
        ",",
        ":",
        "9",
        "=",
        "x",
        "lr",
        "1",
        "99",
        "18446744073709551615",
        "{x}",
        "{}",
    ];
    let like = |bytes: &[u8]| {
        let context = context();
        let maker = Maker::new(&context, None, NOW);
        let object = json!({ "command": ["echo", String::from_utf8_lossy(bytes).replace('\0', ""), "{}-{x}"],
            "name": "n{}{x}", "unique": "u{x}" });
        object_or_none(&object, &maker)
    };
    let step = like(b"{x}{}").unwrap();
    texts("an array", USUAL, &samples, &pieces, |text| {
        let (array, param) = (term::<Indices>(text), term::<Param>(text));
        let params: Vec<Param> = param.into_iter().collect();
        let Some(Some(all)) = taken(Expansion::of(array.as_ref(), &params)) else {
            return false;
        };
        assert!((1..=10_000_000).contains(&all.count()));
        for at in [0, all.count() / 2, all.count() - 1] {
            if let Some(step) = taken(all.step(&step, at)) {
                is_sound(&step);
                let vars = &step.policy.vars;
                assert!((1..=2).contains(&vars.len()));
                // An argv is exact: the value stands there as it is.
                let Command::Argv(words) = &step.command else {
                    panic!("it was an argv");
                };
                if let Some(index) = vars.get("FAIRQ_ARRAY_INDEX") {
                    assert!(words[2].to_str().unwrap().starts_with(index.as_str()));
                }
            }
        }
        true
    });
}

fn object_or_none(value: &Value, maker: &Maker<'_>) -> Option<NewStep> {
    taken(object(value.to_string().as_bytes(), maker)).flatten()
}

/// A hundred thousand places for a value of a hundred thousand bytes.
#[test]
fn a_long_value_in_many_places_is_refused_before_it_fills_the_memory() {
    let context = context();
    let maker = Maker::new(&context, None, NOW);
    let line = "{x}".repeat(40_000);
    let value = format!("x={}", "v".repeat(120_000));
    let all = Expansion::of(None, &[Param::read(&value).unwrap()])
        .unwrap()
        .unwrap();
    for object in [
        json!({ "command": line }),
        json!({ "command": ["true", line] }),
        json!({ "command": "true", "name": line }),
        json!({ "command": "true", "unique": line }),
    ] {
        let like = object_or_none(&object, &maker).unwrap();
        let error = all.step(&like, 0).unwrap_err();
        is_told_well(&error, &[ErrorKind::Usage]);
        assert!(error.what().contains("too large: 2"), "{error}");
    }
}
