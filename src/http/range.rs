//! Parses `Range` headers (RFC 9110, section 14).

use std::ops::Range;

/// The bytes that a response contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All bytes: there is no range, or one that the standard allows to ignore.
    All,
    /// A range that lies inside the content.
    Part(Range<u64>),
    /// A range that lies outside the content.
    Unsatisfiable,
}

/// Parses a `Range` header for content of `total` bytes.
pub fn select(header: Option<&str>, total: u64) -> Selection {
    let spec = header.and_then(|header| header.trim().split_once('='));
    let Some((unit, spec)) = spec else { return Selection::All };
    let Some((first, last)) = spec.trim().split_once('-') else { return Selection::All };
    if !unit.trim_end().eq_ignore_ascii_case("bytes") {
        return Selection::All;
    }
    let (start, end) = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1)),
        (Some(first), None) if last.is_empty() => (first, u64::MAX),
        // The last `last` bytes.
        (None, Some(last)) if first.is_empty() && last > 0 => (total.saturating_sub(last), u64::MAX),
        (None, Some(_)) if first.is_empty() => return Selection::Unsatisfiable,
        _ => return Selection::All,
    };
    if start < total { Selection::Part(start..end.min(total)) } else { Selection::Unsatisfiable }
}

/// Parses a number. One that is too large for `u64` is larger than any content.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_the_standard_says() {
        let part = |start, end| Selection::Part(start..end);
        for (header, expected) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-9", part(0, 10)),
            ("bytes=2-99", part(2, 10)),
            ("bytes=3-", part(3, 10)),
            ("bytes=-3", part(7, 10)),
            ("bytes=-99", part(0, 10)),
            ("Bytes = 9-9", part(9, 10)),
            ("bytes=0-99999999999999999999999", part(0, 10)),
            ("bytes=10-", Selection::Unsatisfiable),
            ("bytes=10-11", Selection::Unsatisfiable),
            ("bytes=99999999999999999999999-", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            // Malformed ranges, other units and several ranges are ignored.
            ("bytes=3-2", Selection::All),
            ("bytes=-", Selection::All),
            ("bytes=a-b", Selection::All),
            ("bytes=0-1,3-4", Selection::All),
            ("bytes=+1-2", Selection::All),
            ("bytes 0-1", Selection::All),
            ("lines=0-1", Selection::All),
            ("", Selection::All),
        ] {
            assert_eq!(select(Some(header), 10), expected, "{header}");
        }
        assert_eq!(select(None, 10), Selection::All);
        assert_eq!(select(Some("bytes=0-"), 0), Selection::Unsatisfiable);
        assert_eq!(select(Some("bytes=-1"), 0), Selection::Unsatisfiable);
    }
}
