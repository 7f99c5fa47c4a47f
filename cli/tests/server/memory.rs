//! `memory`.

use crate::{agentctl::Agentctl, support::shared};

#[test]
fn a_fact_is_added_found_and_forgotten() {
    let cli = Agentctl::new(shared());
    let run = |args: &[&str]| cli.run(&[&["memory"], args, &["--user", "cli-memory"]].concat());
    assert_eq!(run(&["add", "Prefers trains.", "Lives in Oslo."]).expect(0).out, "added 2 facts\n");
    assert_eq!(run(&["search", "trains", "--json"]).expect(0).lines()[0]["text"], "Prefers trains.");
    assert!(run(&["log"]).expect(0).out.contains("Lives in Oslo."));
    assert_eq!(run(&["search", "trains", "--scope", "sessions"]).expect(0).out, "");
    let asked = run(&["forget"]).expect(2);
    assert!(asked.err.contains("--yes"), "{asked:?}");
    assert_eq!(run(&["forget", "--yes"]).expect(0).out, "erased the user cli-memory\n");
    assert_eq!(run(&["search", "trains", "--json"]).expect(0).out, "");
}
