//! Entity tags in the headers of conditional requests (RFC 9110).

/// A tag as headers hold it.
pub fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// Whether a list of tags, or `*`, holds this one as a strong one (`if-match`).
pub fn matches(tags: &str, etag: &str) -> bool {
    tags.trim() == "*" || tags.split(',').any(|tag| tag.trim().trim_matches('"') == etag)
}

/// Whether a list of tags, or `*`, holds this one, be it a weak one (`if-none-match`).
pub fn names(tags: &str, etag: &str) -> bool {
    let strong: Vec<&str> = tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).collect();
    strong.iter().any(|tag| matches(tag, etag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_tags_are_good_enough_to_read_by() {
        for (tags, strong, weak) in [
            ("\"a\"", true, true),
            ("\"b\", \"a\"", true, true),
            ("*", true, true),
            ("W/\"a\"", false, true),
            ("\"ab\"", false, false),
            ("", false, false),
        ] {
            assert_eq!((matches(tags, "a"), names(tags, "a")), (strong, weak), "{tags}");
        }
    }
}
