//! The first file of a `multipart/form-data` body (RFC 7578). Strict: a body that is cut off or not
//! what it says is refused, never guessed at.

use super::disposition::{filename, parameter};
use crate::types::{ErrorCode, Problem};
use bytes::Bytes;

/// Longest head of a part, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// A file of a form.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, as the form says it.
    pub name: String,
    /// What it is, as the form says it.
    pub content_type: Option<String>,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Finds the first file in a body of this content type; `None` when no part of it is a file. What a
/// browser sends for an input in which nothing was chosen, no name and no bytes, is none.
///
/// # Errors
/// When the body is not what its content type says.
pub fn first_file(content_type: &str, body: &Bytes) -> Result<Option<File>, Problem> {
    let boundary = parameter(content_type, "boundary").filter(|boundary| is_boundary(boundary));
    let boundary = boundary.ok_or_else(|| malformed("it has no usable boundary"))?;
    let delimiter = format!("\r\n--{boundary}");
    // The first line may be the body's first, or follow a preamble.
    let opening = delimiter.trim_start().as_bytes();
    let mut at = match body.starts_with(opening) {
        true => opening.len(),
        false => find(body, 0, delimiter.as_bytes()).ok_or_else(|| malformed("it has no parts"))?.1,
    };
    loop {
        let Some(start) = line_end(body, at)? else { return Ok(None) };
        // A part without headers begins with the empty line; every file has some. A part that has but
        // headers ends where it ends: what comes behind it is another's.
        let (end, next) = find_delimiter(body, start.saturating_sub(2), delimiter.as_bytes())
            .ok_or_else(|| malformed("it ends in mid-part"))?;
        let part = body.get(..end.max(start)).unwrap_or_default();
        let head_end = find(part, start.saturating_sub(2), b"\r\n\r\n");
        let (head_end, content) = head_end.ok_or_else(|| malformed("a part has no content"))?;
        if head_end > start + MAX_HEAD {
            return Err(malformed("a part's head is too long"));
        }
        let head = body.get(start..head_end).unwrap_or_default();
        let head = std::str::from_utf8(head).map_err(|_| malformed("a part's head is not UTF-8"))?;
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

/// What follows a delimiter at `at`: the start of the part behind it, or `None` behind the last one.
fn line_end(body: &[u8], at: usize) -> Result<Option<usize>, Problem> {
    let rest = body.get(at..).unwrap_or_default();
    if rest.starts_with(b"--") {
        return Ok(None);
    }
    let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let ends = rest.get(padding..).is_some_and(|rest| rest.starts_with(b"\r\n"));
    if ends { Ok(Some(at + padding + 2)) } else { Err(malformed("a delimiter does not end its line")) }
}

/// Finds the next delimiter, which is no mere start of a longer word.
fn find_delimiter(body: &[u8], mut from: usize, delimiter: &[u8]) -> Option<(usize, usize)> {
    loop {
        let (start, end) = find(body, from, delimiter)?;
        if line_end(body, end).is_ok() {
            return Some((start, end));
        }
        from = end;
    }
}

/// Where `needle` first stands in `body` from `from` on, and where it ends. A needle starts with CR and
/// has no other CR but before LF, so each byte is looked at a few times at most.
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
        // Whatever is missing at its end, a file is whole or refused.
        let whole = body.len() - b"second\r\n--x-1--\r\n".len();
        for end in 0..whole {
            let cut = read(FORM, &body[..end]);
            assert!(!matches!(&cut, Ok(Some(file)) if *file != expected), "{end}: {cut:?}");
        }
    }

    #[test]
    fn an_empty_file_and_no_file_are_told_apart() {
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
    fn what_is_no_form_is_refused() {
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
            // Neither part of it may be taken for the other's.
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
