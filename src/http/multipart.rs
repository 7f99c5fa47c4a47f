//! Reads the first file of a `multipart/form-data` body (RFC 7578). A truncated or malformed body is refused.

use super::disposition::{filename, parameter};
use crate::types::{ErrorCode, Problem};
use bytes::Bytes;

/// Longest header block of a part, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// A file of a form.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// The name that the form gives it.
    pub name: String,
    /// The content type that the form gives it.
    pub content_type: Option<String>,
    /// The content.
    pub bytes: Bytes,
}

/// Finds the first file in a body of this content type; `None` when no part is a file. A part without name
/// and content is not a file: browsers send it for an input in which no file was chosen.
///
/// # Errors
/// `invalid_request` when the body does not have this content type.
pub fn first_file(content_type: &str, body: &Bytes) -> Result<Option<File>, Problem> {
    let boundary = parameter(content_type, "boundary").filter(|boundary| is_boundary(boundary));
    let boundary = boundary.ok_or_else(|| malformed("it has no usable boundary"))?;
    let delimiter = format!("\r\n--{boundary}");
    // The first delimiter starts the body, or follows a preamble.
    let opening = delimiter.trim_start().as_bytes();
    let mut at = match body.starts_with(opening) {
        true => opening.len(),
        false => find(body, 0, delimiter.as_bytes()).ok_or_else(|| malformed("it has no parts"))?.1,
    };
    loop {
        let Some(start) = line_end(body, at)? else { return Ok(None) };
        // A part without headers begins with the empty line. The search for the end of the headers stops at
        // the next delimiter, because the text after it belongs to another part.
        let (end, next) = find_delimiter(body, start.saturating_sub(2), delimiter.as_bytes())
            .ok_or_else(|| malformed("it ends in the middle of a part"))?;
        let part = body.get(..end.max(start)).unwrap_or_default();
        let head_end = find(part, start.saturating_sub(2), b"\r\n\r\n");
        let (head_end, content) = head_end.ok_or_else(|| malformed("a part has no content"))?;
        if head_end > start + MAX_HEAD {
            return Err(malformed("a part's headers are too long"));
        }
        let head = body.get(start..head_end).unwrap_or_default();
        let head = std::str::from_utf8(head).map_err(|_| malformed("a part's headers are not UTF-8"))?;
        let header = |name: &str| {
            let line = head.split("\r\n").filter_map(|line| line.split_once(':'));
            line.into_iter().find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
        };
        if let Some(name) = header("content-disposition").and_then(filename) {
            let content_type = header("content-type").map(str::to_owned);
            if name.is_empty() && end <= content {
                at = next;
                continue;
            }
            return Ok(Some(File { name, content_type, bytes: body.slice(content..end.max(content)) }));
        }
        at = next;
    }
}

fn malformed(why: &str) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, format!("the body is not multipart/form-data: {why}"))
}

fn is_boundary(boundary: &str) -> bool {
    (1..=70).contains(&boundary.len())
        && !boundary.ends_with(' ')
        && boundary.bytes().all(|b| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&b))
}

/// Returns the start of the part after a delimiter that ends at `at`; `None` after the last delimiter.
fn line_end(body: &[u8], at: usize) -> Result<Option<usize>, Problem> {
    let rest = body.get(at..).unwrap_or_default();
    if rest.starts_with(b"--") {
        return Ok(None);
    }
    let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let ends = rest.get(padding..).is_some_and(|rest| rest.starts_with(b"\r\n"));
    if ends { Ok(Some(at + padding + 2)) } else { Err(malformed("a delimiter is followed by text")) }
}

/// Finds the next delimiter that ends its line.
fn find_delimiter(body: &[u8], mut from: usize, delimiter: &[u8]) -> Option<(usize, usize)> {
    loop {
        let (start, end) = find(body, from, delimiter)?;
        if line_end(body, end).is_ok() {
            return Some((start, end));
        }
        from = end;
    }
}

/// Finds `needle` in `body` from `from` on; returns its start and end. A needle starts with CR and has other
/// CRs only before LF, so each byte is compared a few times at most.
fn find(body: &[u8], from: usize, needle: &[u8]) -> Option<(usize, usize)> {
    let at = from + body.get(from..)?.windows(needle.len()).position(|window| window == needle)?;
    Some((at, at + needle.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content_type: &str, body: &[u8]) -> Result<Option<File>, Problem> {
        first_file(content_type, &Bytes::copy_from_slice(body))
    }

    const FORM: &str = "multipart/form-data; boundary=\"x-1\"";

    #[test]
    fn finds_the_first_file_byte_by_byte() {
        let content = b"\0\r\n--x-\r\n--x-12\r\n\xff";
        let mut body =
            b"preamble\r\n--x-1 \r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nno file\r\n".to_vec();
        body.extend(b"--x-1\r\n\r\nno head\r\n--x-1\r\ncontent-type:  image/png \r\n");
        body.extend(b"CONTENT-DISPOSITION: form-data; name=\"f\"; filename=\"Zo\xc3\xab.png\"\r\n\r\n");
        body.extend(content);
        body.extend(b"\r\n--x-1\r\nContent-Disposition: form-data; filename=b\r\n\r\nsecond\r\n--x-1--\r\n");
        let file = read(FORM, &body).expect("a form").expect("a file");
        let expected = File {
            name: "Zoë.png".into(),
            content_type: Some("image/png".into()),
            bytes: Bytes::from_static(content),
        };
        assert_eq!(file, expected);
        // A truncated body gives the whole file or is refused.
        let whole = body.len() - b"second\r\n--x-1--\r\n".len();
        for end in 0..whole {
            let cut = read(FORM, &body[..end]);
            assert!(!matches!(&cut, Ok(Some(file)) if *file != expected), "{end}: {cut:?}");
        }
    }

    #[test]
    fn an_empty_file_differs_from_no_file() {
        let body = b"--x-1\r\nContent-Disposition: form-data; filename=\"\"\r\n\r\n\r\n--x-1--";
        assert_eq!(read(FORM, body).expect("a form"), None, "nothing was chosen");
        let body = b"--x-1\r\nContent-Disposition: form-data; filename=\"\"\r\n\r\n\r\n\
            --x-1\r\nContent-Disposition: form-data; name=f; filename=b\r\n\r\ndata\r\n--x-1--";
        assert_eq!(read(FORM, body).expect("a form").map(|file| file.name), Some("b".into()));
        let body = b"--x-1\r\nContent-Disposition: form-data; filename=a\r\n\r\n\r\n--x-1--";
        assert_eq!(read(FORM, body).expect("a form").map(|file| file.bytes.len()), Some(0));
        let body = b"--x-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x-1--";
        assert_eq!(read(FORM, body).expect("a form"), None);
        assert_eq!(read(FORM, b"--x-1--\r\n").expect("a form"), None);
    }

    #[test]
    fn malformed_forms_are_refused() {
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        for (content_type, body) in [
            ("multipart/form-data", &b"--x-1--"[..]),
            ("multipart/form-data; boundary=", b"----"),
            (&long, b"--x-1--"),
            (FORM, b""),
            (FORM, b"--x-2--"),
            (FORM, b"--x-1\r\nContent-Disposition: form-data; filename=a\r\n\r\ncut off"),
            (FORM, b"--x-1\r\nContent-Disposition: form-data; filename=a"),
            (FORM, b"--x-1"),
            // Headers and content must belong to the same part.
            (
                FORM,
                b"--x-1\r\nContent-Disposition: form-data; filename=a\r\n--x-1\r\nA: b\r\n\r\nc\r\n--x-1--",
            ),
            (FORM, b"--x-1 nonsense\r\n\r\n\r\n--x-1--"),
            (FORM, b"--x-1\r\nContent-Disposition: form-data; filename=\xff\r\n\r\na\r\n--x-1--"),
        ] {
            let problem = read(content_type, body).expect_err("no form");
            assert_eq!(problem.code, ErrorCode::InvalidRequest, "{content_type} {body:?}");
        }
    }
}
