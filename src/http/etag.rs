//! Entity tags in the headers of conditional requests (RFC 9110).

/// Quotes a tag for a header.
pub fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// Returns whether a list of tags, or `*`, contains this tag as a strong tag (`if-match`).
pub fn matches(tags: &str, etag: &str) -> bool {
    tags.trim() == "*" || tags.split(',').any(|tag| tag.trim().trim_matches('"') == etag)
}

/// Returns whether a list of tags, or `*`, contains this tag, weak or strong (`if-none-match`).
pub fn matches_weakly(tags: &str, etag: &str) -> bool {
    let strong: Vec<&str> = tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).collect();
    strong.iter().any(|tag| matches(tag, etag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_tags_match_for_reading_only() {
        for (tags, strong, weak) in [
            ("\"a\"", true, true),
            ("\"b\", \"a\"", true, true),
            ("*", true, true),
            ("W/\"a\"", false, true),
            ("\"ab\"", false, false),
            ("", false, false),
        ] {
            assert_eq!((matches(tags, "a"), matches_weakly(tags, "a")), (strong, weak), "{tags}");
        }
    }
}
