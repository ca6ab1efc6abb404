//! Files that are read whole or by lines.

use super::*;

#[test]
fn variables_of_a_file_read_back_or_are_refused() {
    let samples: [&[u8]; 7] = [
        b"A=1\nB=two words\n# remark\n\n_C=\r\n",
        b"A=b=c\nA=again\n",
        b"1A=x\n",
        b"no sign\n",
        b"A=\xff\xfe\n",
        b"A=x\0y\n",
        b"=x\n",
    ];
    let words: [&[u8]; 6] = [b"A=", b"\n", b"#", b"\r", b"=", b"B_2=x"];
    mutants(
        "a file of variables",
        2 * USUAL,
        &samples,
        &words,
        |bytes| {
            let mut vars = BTreeMap::new();
            if taken(env::read_lines(bytes, Path::new("vars"), &mut vars)).is_none() {
                return false;
            }
            let mut text = Vec::new();
            for (name, value) in &vars {
                assert!(env::is_name(name.as_bytes()), "{name:?}");
                assert!(!value.as_bytes().contains(&0) && !value.as_bytes().contains(&b'\n'));
                text.extend_from_slice(name.as_bytes());
                text.push(b'=');
                text.extend_from_slice(value.as_bytes());
                // A value may end with a carriage return: the next one is taken off.
                text.extend_from_slice(b"\r\n");
            }
            let mut again = BTreeMap::new();
            env::read_lines(&text, Path::new("vars"), &mut again).unwrap();
            assert_eq!(again, vars);
            let env = Environment::from_pairs(vars.clone());
            let pairs = env
                .pairs()
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(pairs.collect::<BTreeMap<_, _>>(), vars);
            true
        },
    );
}

#[test]
fn records_are_all_of_a_file_and_none_is_larger_than_it_may_be() {
    let form = Form {
        end: b'\n',
        most: 40,
    };
    let samples: [&[u8]; 3] = [
        b"one\n\ntwo\nthree",
        b"\n\n\n",
        b"0123456789012345678901234567890123456789\n",
    ];
    mutants(
        "records",
        USUAL,
        &samples,
        &[b"\n", b"0123456789"],
        |bytes| {
            let mut text = Vec::new();
            let mut lines = 0;
            for record in records(Cursor::new(bytes), form, "file") {
                let Some(record) = taken(record) else {
                    return false;
                };
                lines += 1;
                assert_eq!(record.line, lines);
                assert!(record.bytes.len() <= form.most && !record.bytes.contains(&form.end));
                text.extend_from_slice(&record.bytes);
                text.push(form.end);
            }
            if !bytes.ends_with(&[form.end]) && !bytes.is_empty() {
                text.pop();
            }
            assert_eq!(text, bytes);
            true
        },
    );
}

#[test]
fn a_file_without_an_end_is_given_up() {
    let form = Form {
        end: b'\n',
        most: 1 << 20,
    };
    for piece in [&b"\0"[..], b"x", b"{\"command\":[", b"A=b "] {
        let endless = |taken| Endless {
            piece,
            taken,
            most: 4 << 20,
        };
        let count = AtomicU64::new(0);
        let source = io::BufReader::new(endless(&count));
        let error = records(source, form, "file").find_map(Result::err).unwrap();
        is_told_well(&error, &[ErrorKind::Usage]);
        let count = AtomicU64::new(0);
        let error = at_most(endless(&count), 1 << 20, "file").unwrap_err();
        is_told_well(&error, &[ErrorKind::Usage]);
        assert!(count.load(Ordering::Relaxed) > 1 << 20);
    }
}
