//! The lines of a log that arrives in pieces.

/// Divides a log into lines, of which it keeps one at a time.
pub struct Lines {
    /// Maximum length of a line in bytes. A longer one is left out.
    most: usize,
    line: Vec<u8>,
}

impl Lines {
    /// Creates it for lines of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { most, line: Vec::new() }
    }

    /// Reads the next piece of the log, and calls `each` with the lines that end in it.
    pub fn read(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = (self.most + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
            if piece.ends_with(b"\n") {
                if self.line.len() <= self.most {
                    each(&self.line);
                }
                self.line.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_in_any_division_of_the_log() {
        let log = format!("one\n{}\n\ntwo\nrest", "x".repeat(50));
        for size in [1, 3, 20, log.len()] {
            let (mut lines, mut found) = (Lines::new(20), Vec::new());
            log.as_bytes().chunks(size).for_each(|piece| lines.read(piece, |line| found.push(line.to_vec())));
            assert_eq!(found, [&b"one\n"[..], b"\n", b"two\n"], "{size}");
        }
    }
}
