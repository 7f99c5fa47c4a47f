//! Splits bytes into server-sent events.
//!
//! Hand-written because every token is an event: the splitter is synchronous, lends out text without copying,
//! reuses its buffers and is bounded. Stream adapters such as `sse-stream` poll a future and allocate several
//! strings per event, and have no byte limit.

use thiserror::Error;

/// Maximum size of an event in bytes.
pub const MAX_EVENT: usize = 8 * 1024 * 1024;

/// An event of more than [`MAX_EVENT`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("sent an event of more than 8 MiB")]
pub struct EventTooLarge;

/// Receives an event's name (empty when it has none) and its data. Returns true to stop reading.
pub type OnEvent<'f, E> = &'f mut dyn FnMut(&str, &str) -> Result<bool, E>;

/// An incremental parser of an event stream. Chunks may be split anywhere; lines may end in LF, CR or CRLF.
///
/// ```
/// use edge_harness::ports::event_stream::{EventTooLarge, Splitter};
///
/// let mut events = Vec::new();
/// let done = Splitter::default().push::<EventTooLarge>(b"event: greeting\ndata: Hello\n\n", &mut |name, data| {
///     events.push(format!("{name}: {data}"));
///     Ok(false)
/// });
/// assert_eq!((done, events), (Ok(false), vec!["greeting: Hello".to_owned()]));
/// ```
#[derive(Default)]
pub struct Splitter {
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    name: String,
    data: Vec<u8>,
    has_data: bool,
    /// The id of the event that is being read.
    id: Option<String>,
    /// The id of the last event that had one.
    last_id: Option<String>,
    /// Whether the last byte was a CR. An LF that follows belongs to the same line ending.
    after_cr: bool,
    /// Whether the first line was read: only the first line can start with a byte-order mark.
    started: bool,
}

impl Splitter {
    /// Parses a chunk. Returns true when `on_event` asked to stop.
    ///
    /// # Errors
    /// The error of `on_event`, or an event that is too large.
    pub fn push<E: From<EventTooLarge>>(
        &mut self,
        chunk: &[u8],
        on_event: OnEvent<'_, E>,
    ) -> Result<bool, E> {
        let mut rest = chunk;
        while let Some((&first, remaining)) = rest.split_first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = remaining;
                continue;
            }
            let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.bound(rest.len())?;
                self.line.extend_from_slice(rest);
                break;
            };
            let (piece, tail) = rest.split_at(end);
            self.after_cr = tail.first() == Some(&b'\r');
            rest = tail.get(1..).unwrap_or_default();
            self.bound(piece.len())?;
            if self.end_line(piece, on_event)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Parses the rest when the stream has ended. Some servers omit the last empty line.
    ///
    /// # Errors
    /// As for [`Splitter::push`].
    pub fn finish<E: From<EventTooLarge>>(&mut self, on_event: OnEvent<'_, E>) -> Result<bool, E> {
        Ok(self.end_line(b"", on_event)? || self.end_line(b"", on_event)?)
    }

    /// Returns the id of the last event that had one, with which a reader continues.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    fn bound(&self, more: usize) -> Result<(), EventTooLarge> {
        if self.line.len() + self.data.len() + more > MAX_EVENT {
            return Err(EventTooLarge);
        }
        Ok(())
    }

    fn end_line<E>(&mut self, piece: &[u8], on_event: OnEvent<'_, E>) -> Result<bool, E> {
        if self.line.is_empty() {
            return self.take_line(piece, on_event);
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(piece);
        let done = self.take_line(&line, on_event);
        line.clear();
        self.line = line;
        done
    }

    fn take_line<E>(&mut self, mut line: &[u8], on_event: OnEvent<'_, E>) -> Result<bool, E> {
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            // An id with a NUL is ignored, as the standard says.
            b"id" if !value.contains(&0) => self.id = Some(String::from_utf8_lossy(value).into_owned()),
            // A comment, `retry`, or an unknown field.
            _ => {}
        }
        Ok(false)
    }

    fn dispatch<E>(&mut self, on_event: OnEvent<'_, E>) -> Result<bool, E> {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id);
        }
        let done = if std::mem::take(&mut self.has_data) {
            // Checking whole words at a time is several times faster than `from_utf8_lossy`.
            match std::str::from_utf8(&self.data) {
                Ok(data) => on_event(&self.name, data),
                Err(_) => on_event(&self.name, &String::from_utf8_lossy(&self.data)),
            }
        } else {
            Ok(false)
        };
        self.data.clear();
        self.name.clear();
        done
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Vec::new();
        let mut splitter = Splitter::default();
        let mut keep = |name: &str, data: &str| {
            events.push((name.to_owned(), data.to_owned()));
            Ok::<_, EventTooLarge>(false)
        };
        for chunk in chunks {
            splitter.push(chunk, &mut keep).unwrap();
        }
        splitter.finish(&mut keep).unwrap();
        events
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(n, d)| ((*n).to_owned(), (*d).to_owned())).collect()
    }

    const MIXED: &str = "\u{feff}data: one\n\n: ping\r\nevent: x\r\ndata:two\r\ndata:  ü€😀\r\n\r\nid: 7\rdata\r\rfoo\n\nevent: lost\n\ndata: last";

    #[test]
    fn line_endings_comments_and_byte_order_mark_are_parsed() {
        let events = read(&[MIXED.as_bytes()]);
        assert_eq!(events, pairs(&[("", "one"), ("x", "two\n ü€😀"), ("", ""), ("", "last")]));
    }

    #[test]
    fn parsing_stops_when_the_callback_asks() {
        let mut seen = 0;
        let done = Splitter::default().push::<EventTooLarge>(b"data: a\n\ndata: b\n\n", &mut |_, _| {
            seen += 1;
            Ok(true)
        });
        assert_eq!((done, seen), (Ok(true), 1));
    }

    #[test]
    fn the_id_of_an_event_is_known_when_the_event_is_complete() {
        let mut splitter = Splitter::default();
        let mut push = |text: &str| {
            splitter.push::<EventTooLarge>(text.as_bytes(), &mut |_, _| Ok(false)).unwrap();
            splitter.last_id().map(str::to_owned)
        };
        assert_eq!(push("data: a\n\nid: 1\ndata: b\n"), None);
        assert_eq!(push("\n: ping\n\ndata: c\n\nid: 2"), Some("1".into()));
        assert_eq!(push("\ndata: d\n\nid: 3\0\ndata: e\n\n"), Some("2".into()));
    }

    #[test]
    fn memory_is_bounded() {
        let mut splitter = Splitter::default();
        let chunk = vec![b'x'; 1024 * 1024];
        let push = |splitter: &mut Splitter, chunk: &[u8]| {
            splitter.push::<EventTooLarge>(chunk, &mut |_, _| Ok(false)).is_ok()
        };
        let results: Vec<_> = (0..9).map(|_| push(&mut splitter, &chunk)).collect();
        assert_eq!(results.iter().filter(|ok| **ok).count(), 8);
        let mut many = Splitter::default();
        let line = [b"data: ".as_slice(), &chunk, b"\n"].concat();
        assert!((0..9).any(|_| !push(&mut many, &line)));
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(cuts in proptest::collection::vec(0..MIXED.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&MIXED.as_bytes()[from..cut]);
                from = cut;
            }
            chunks.push(&MIXED.as_bytes()[from..]);
            prop_assert_eq!(read(&chunks), read(&[MIXED.as_bytes()]));
        }
    }
}
