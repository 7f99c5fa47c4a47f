//! Which bytes a `Range` header asks for (RFC 9110, 14).

use std::ops::Range;

/// What is to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: there is no range, or none that we know how to answer, which may be ignored.
    All,
    /// These bytes, which lie inside it.
    Part(Range<u64>),
    /// Bytes that are not there.
    Missing,
}

/// Reads a `Range` header for something of `total` bytes.
pub fn wanted(header: Option<&str>, total: u64) -> Wanted {
    let spec = header.and_then(|header| header.trim().split_once('='));
    let Some((unit, spec)) = spec else { return Wanted::All };
    let Some((first, last)) = spec.trim().split_once('-') else { return Wanted::All };
    if !unit.trim_end().eq_ignore_ascii_case("bytes") {
        return Wanted::All;
    }
    let (start, end) = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1)),
        (Some(first), None) if last.is_empty() => (first, u64::MAX),
        // The last so many. None of them, or of nothing, are no bytes.
        (None, Some(last)) if first.is_empty() && last > 0 => (total.saturating_sub(last), u64::MAX),
        (None, Some(_)) if first.is_empty() => return Wanted::Missing,
        _ => return Wanted::All,
    };
    if start < total { Wanted::Part(start..end.min(total)) } else { Wanted::Missing }
}

/// A number; one that is too large to be written down is larger than anything we have.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_the_standard_says() {
        let part = |start, end| Wanted::Part(start..end);
        for (header, expected) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-9", part(0, 10)),
            ("bytes=2-99", part(2, 10)),
            ("bytes=3-", part(3, 10)),
            ("bytes=-3", part(7, 10)),
            ("bytes=-99", part(0, 10)),
            ("Bytes = 9-9", part(9, 10)),
            ("bytes=0-99999999999999999999999", part(0, 10)),
            ("bytes=10-", Wanted::Missing),
            ("bytes=10-11", Wanted::Missing),
            ("bytes=99999999999999999999999-", Wanted::Missing),
            ("bytes=-0", Wanted::Missing),
            // Malformed, of another unit, or several: as if there were none.
            ("bytes=3-2", Wanted::All),
            ("bytes=-", Wanted::All),
            ("bytes=a-b", Wanted::All),
            ("bytes=0-1,3-4", Wanted::All),
            ("bytes=+1-2", Wanted::All),
            ("bytes 0-1", Wanted::All),
            ("lines=0-1", Wanted::All),
            ("", Wanted::All),
        ] {
            assert_eq!(wanted(Some(header), 10), expected, "{header}");
        }
        assert_eq!(wanted(None, 10), Wanted::All);
        assert_eq!(wanted(Some("bytes=0-"), 0), Wanted::Missing);
        assert_eq!(wanted(Some("bytes=-1"), 0), Wanted::Missing);
    }
}
