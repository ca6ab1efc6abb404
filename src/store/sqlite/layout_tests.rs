//! What is believed of a manifest.

use super::*;
use crate::fuzz;

#[test]
fn a_manifest_is_that_of_a_store_or_is_refused() {
    let samples: [&[u8]; 9] = [
        b"format = 1\nstore = \"00ff00ff00ff00ff\"\nshards = 4\nplacement = \"key\"\n",
        b"format = 1\nstore = \"\\n\\u001b[2J\"\nshards = 26\nplacement = \"spread\"\n",
        b"format = 2\nstore = \"x\"\nshards = 4\nplacement = \"key\"\n",
        b"format = 0\nstore = \"x\"\nshards = 4\nplacement = \"key\"\n",
        b"format = 1\nstore = \"x\"\nshards = 27\nplacement = \"key\"\n",
        b"format = 1\nstore = \"x\"\nshards = 0\nplacement = \"key\"\n",
        b" \n\n",
        b"\xff\xfe",
        b"a = [[[[[[[[[[[[",
    ];
    let words: [&[u8]; 6] = [
        b"format = 1\n",
        b"shards = 300\n",
        b"[x]\n",
        b"[[",
        b"26",
        b"'",
    ];
    let root = Path::new("/store");
    let kinds = [ErrorKind::Damaged, ErrorKind::NewerSchema];
    fuzz::mutants(
        "a manifest",
        2_000,
        &samples,
        &words,
        |bytes| match understand(root, bytes) {
            Ok(Some(manifest)) => {
                assert_eq!(manifest.format, FORMAT);
                assert!((1..=ShardId::MAX_SHARDS).contains(&manifest.shards));
                let again = toml::to_string(&manifest).unwrap();
                let again = understand(root, again.as_bytes()).unwrap();
                assert_eq!(again, Some(manifest));
                true
            }
            Ok(None) => {
                assert!(bytes.trim_ascii().is_empty());
                true
            }
            Err(error) => {
                assert!(kinds.contains(&error.kind()), "{error}");
                false
            }
        },
    );
}
