//! The page about keeping a store, run as it is written.

use crate::common::Sandbox;
use crate::page::{parts, run};

#[test]
fn the_page_about_keeping_prints_what_it_says() {
    let sandbox = Sandbox::new();
    let parts = parts("docs/keeping.md", "run");
    assert!(parts.len() > 4, "the page has {} parts", parts.len());
    for part in &parts {
        run(&sandbox, part);
    }
}
