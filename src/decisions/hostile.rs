//! Logs of decisions that somebody has written over.

use super::*;
use crate::fuzz;

#[test]
fn whatever_is_in_a_log_a_record_is_one_that_could_have_been_written() {
    let good = br#"{"schema":1,"at":5,"cycle":1,"shard":0,"band":100,"pick":"stride","seed":null,"capacity":8,"slots":[["k",1.5,"a1"],["k",2.0,"a2"]]}"#;
    let samples: [&[u8]; 6] = [
        good,
        br#"{"schema":1,"at":5,"cycle":1,"shard":26,"band":100,"pick":"lottery","seed":7,"capacity":8,"slots":[]}"#,
        br#"{"schema":2,"at":5,"cycle":1,"shard":0,"band":100,"pick":"stride","seed":7,"capacity":8,"slots":[]}"#,
        br#"{"schema":1,"at":5,"cycle":1,"shard":0,"band":4294967295,"pick":"stride","capacity":8,"slots":[["",1e308,"a0"]]}"#,
        b"\n\n\xff\"a1\"\n",
        b"[[[[[[[[[[[[[[[[\"a1\"",
    ];
    let words: [&[u8]; 5] = [b"\"a1\"", b"\n", b"\"slots\":[", b"null", b"-1"];
    let root = tempfile::tempdir().unwrap();
    let (runner, id) = (RunnerId::new(7), "a1".parse().unwrap());
    fuzz::mutants("a log of decisions", 2_000, &samples, &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        for record in text.lines().filter_map(parse) {
            assert!(record.schema == SCHEMA && record.band <= Band::WORST);
            assert!(record.shard.number() < ShardId::MAX_SHARDS);
            let again = serde_json::to_string(&record).unwrap();
            assert_eq!(parse(&again), Some(record));
        }
        let path = path(root.path(), runner, ENDINGS[bytes.len() % 2]);
        fs::write(&path, bytes).unwrap();
        let known = read(root.path(), runner, &[id]).unwrap();
        fs::remove_file(path).unwrap();
        assert!(
            known
                .records
                .iter()
                .all(|record| record.place(id).is_some())
        );
        assert!(known.records.len() <= text.lines().count());
        !known.records.is_empty()
    });
}

/// A file with a hole is as large as it says, and nothing is in it.
#[test]
fn a_log_that_is_larger_than_any_is_not_read_to_its_end() {
    let root = tempfile::tempdir().unwrap();
    let runner = RunnerId::new(7);
    let file = File::create(path(root.path(), runner, ENDINGS[0])).unwrap();
    file.set_len(1 << 40).unwrap();
    let id = "a1".parse().unwrap();
    assert_eq!(read(root.path(), runner, &[id]).unwrap(), Known::default());
}
