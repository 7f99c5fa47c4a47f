use super::*;
use crate::ports::filesystem::Entry;
use crate::types::{FilePath, Timestamp};
use bytes::Bytes;
use pretty_assertions::assert_eq;

/// Returns the file of which the first characters were read.
fn file(text: &str, read: usize) -> FileStart {
    let path = FilePath::parse(layout::TOOLS).expect("a path");
    let entry = Entry { path, bytes: text.len() as u64, etag: "e".into(), updated_at: Timestamp(0) };
    FileStart { entry, bytes: Bytes::copy_from_slice(&text.as_bytes()[..read.min(text.len())]) }
}

fn parsed(text: &str) -> (ToolFilter, Option<String>) {
    parse(&file(text, text.len()))
}

fn filter(allow: &[&str], deny: &[&str]) -> ToolFilter {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    ToolFilter { allow: names(allow), deny: names(deny) }
}

#[test]
fn the_file_has_two_lists() {
    assert_eq!(parsed("{}"), (filter(&[], &[]), None));
    assert_eq!(
        parsed(r#"{"allow": ["echo", "unknown"], "deny": ["recall"]}"#),
        (filter(&["echo", "unknown"], &["recall"]), None)
    );
}

#[test]
fn a_malformed_file_keeps_all_tools_and_says_why() {
    for (text, expected) in [
        ("{\"deny\": [\"echo\"]", "EOF"),
        ("[]", "invalid type"),
        (r#"{"deny": "echo"}"#, "invalid type"),
        (r#"{"denied": ["echo"]}"#, "unknown field `denied`"),
    ] {
        let (filter, fault) = parsed(text);
        assert_eq!(filter, ToolFilter::default(), "{text}");
        assert!(fault.as_ref().is_some_and(|fault| fault.contains(expected)), "{text}: {fault:?}");
    }
    let long = format!("{{\"deny\": [\"echo\"]}}{}", " ".repeat(MAX_CHARS));
    let (kept, fault) = parse(&file(&long, MAX_CHARS));
    assert_eq!(
        (kept, fault),
        (ToolFilter::default(), Some("the file is longer than 16000 characters".into()))
    );
}

#[test]
fn malformed_servers_keep_the_lists() {
    let servers = |json: &str| parsed(&format!(r#"{{"deny": ["echo"], "mcpServers": {json}}}"#));
    let denied = filter(&[], &["echo"]);
    assert_eq!(servers(r#"{"crm": {"url": "https://crm.example"}}"#), (denied.clone(), None));
    assert_eq!(servers("[]"), (denied, Some("mcpServers: expected an object".into())));
}
