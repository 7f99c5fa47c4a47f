//! Compares docs/agentctl.md with the help of the commands. `UPDATE_DOCS=1 cargo test -p edge-harness-cli --test docs`
//! writes the generated part.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use pretty_assertions::assert_eq;
use std::{env, fs, path::Path};

const BEGIN: &str = "<!-- generated -->\n";
const END: &str = "<!-- end of generated -->\n";

#[test]
fn the_page_has_the_help_of_every_command() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/agentctl.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("a begin marker");
    let (found, after) = rest.split_once(END).expect("an end marker");
    let help = format!("{}\n", agentctl::reference(agentctl::command()));
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, format!("{before}{BEGIN}{help}{END}{after}")).unwrap();
    } else {
        let hint = "docs/agentctl.md is stale; run: UPDATE_DOCS=1 cargo test -p edge-harness-cli --test docs";
        assert_eq!(found, help, "{hint}");
    }
}
