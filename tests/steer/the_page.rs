//! The page about steering, run as it is written.

use crate::common::Sandbox;
use crate::page::{parts, run};

#[test]
fn the_page_about_steering_prints_what_it_says() {
    let sandbox = Sandbox::new();
    let parts = parts("docs/steering.md", "run");
    assert!(parts.len() > 7, "the page has {} parts", parts.len());
    for part in &parts {
        run(&sandbox, part);
    }
}
