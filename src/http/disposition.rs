//! File names in headers (RFC 6266, RFC 7578).

use crate::types::text;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Longest file name, in bytes.
const MAX_NAME: usize = 255;
/// All but the unreserved characters of a URI (RFC 3986). An extended parameter percent-encodes them too (RFC 8187).
pub(super) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a parameter of a header such as `form-data; name="a"; filename="b.txt"`.
pub fn parameter(header: &str, wanted: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let end = rest.find([';', '=']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        // Text without a value is not a parameter, and neither is text after a quoted value.
        let after = match after.strip_prefix('=') {
            None => after,
            Some(given) => {
                let (value, after) = value(given.trim_start());
                if name.trim().eq_ignore_ascii_case(wanted) {
                    return Some(value);
                }
                after
            }
        };
        rest = after.split_once(';')?.1;
    }
}

/// Splits text into a token or quoted string, and the rest.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        return (value.trim().to_owned(), rest);
    };
    let mut out = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (out, quoted.split_at(at + 1).1),
            // Browsers escape only `"` and `\`: any other backslash is part of the name.
            '\\' => {
                let escaped = chars.next_if(|(_, next)| matches!(next, '"' | '\\'));
                out.push(escaped.map_or('\\', |(_, c)| c));
            }
            c => out.push(c),
        }
    }
    (out, "")
}

/// Returns the file name in a `content-disposition`; `filename*` takes precedence over `filename`.
pub fn filename(header: &str) -> Option<String> {
    let extended = parameter(header, "filename*").and_then(|value| {
        let (charset, rest) = value.split_once('\'')?;
        let (_, encoded) = rest.split_once('\'')?;
        let decoded = percent_decode_str(encoded).decode_utf8().ok()?;
        charset.eq_ignore_ascii_case("utf-8").then(|| decoded.into_owned())
    });
    extended.or_else(|| parameter(header, "filename"))
}

/// Reduces a file name to one line without folders; `None` when nothing is left.
pub fn plain(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.chars().filter(|c| text::is_inline(*c)).collect();
    let clean = clean.trim();
    let name = clean.split_at(clean.floor_char_boundary(MAX_NAME)).0.trim_end();
    (!matches!(name, "" | "." | "..")).then(|| name.to_owned())
}

/// Returns the `content-disposition` that makes a browser save the file as `name` instead of showing it as a
/// page.
pub fn attachment(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || " ._-()+@,=~".contains(c);
    let fallback: String = name.chars().map(|c| if safe(c) { c } else { '_' }).collect();
    let mut header = format!("attachment; filename=\"{fallback}\"");
    if fallback != name {
        header.push_str(&format!("; filename*=UTF-8''{}", utf8_percent_encode(name, RESERVED)));
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_names_are_read() {
        for (header, expected) in [
            ("attachment; filename=a.txt", Some("a.txt")),
            ("attachment; filename=\"a; b.txt\"; size=3", Some("a; b.txt")),
            ("form-data; name=\"filename=x\"; filename=\"a.txt\"", Some("a.txt")),
            ("form-data; name=\"f\"; FileName = \"say \\\"hi\\\".txt\"", Some("say \"hi\".txt")),
            ("form-data; filename=\"C:\\dir\\a.txt\"", Some("C:\\dir\\a.txt")),
            ("attachment; filename=\"_.txt\"; filename*=UTF-8''%E5%B1%B1.txt", Some("山.txt")),
            ("attachment; filename*=latin1''%FC.txt; filename=u.txt", Some("u.txt")),
            ("attachment; filename=\"open", Some("open")),
            ("form-data; foo; filename=a", Some("a")),
            ("form-data;; name=\"a\" b=\"; filename=c\"; filename=a", Some("c\"")),
            ("form-data; foo; bar", None),
            ("attachment", None),
            ("form-data; name=\"a\"", None),
            ("", None),
        ] {
            assert_eq!(filename(header).as_deref(), expected, "{header}");
        }
    }

    #[test]
    fn a_name_escapes_neither_its_folder_nor_its_header() {
        for (name, expected) in [
            ("../../etc/passwd", Some("passwd")),
            ("C:\\dir\\a.txt", Some("a.txt")),
            ("a\r\nset-cookie: b", Some("aset-cookie: b")),
            ("a\u{202e}txt.exe\u{2028}", Some("atxt.exe")),
            (" Zoë 山.txt ", Some("Zoë 山.txt")),
            ("..", None),
            ("a/", None),
            ("\0", None),
        ] {
            assert_eq!(plain(name).as_deref(), expected, "{name:?}");
        }
        assert_eq!(plain(&"山".repeat(100)).map(|name| name.len()), Some(255));
        assert_eq!(attachment("a b.txt"), "attachment; filename=\"a b.txt\"");
        assert_eq!(
            attachment("Zoë \"山\".txt"),
            "attachment; filename=\"Zo_ ___.txt\"; filename*=UTF-8''Zo%C3%AB%20%22%E5%B1%B1%22.txt"
        );
        let header = attachment("a\r\n\";%\u{202e}");
        assert!(header.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{header}");
        assert_eq!(filename(&header).as_deref(), Some("a\r\n\";%\u{202e}"));
    }
}
