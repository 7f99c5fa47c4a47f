//! Texts that fit their room, and say where the rest is.

/// Most characters of a note, but for the path in it.
const NOTE: usize = 120;

/// A text, or the start of one.
pub struct Piece {
    /// What there is of it.
    pub text: String,
    /// Whether there is more behind it.
    pub goes_on: bool,
    /// How to get at the rest.
    pub rest: Rest,
}

/// How to get at what was cut off.
pub enum Rest {
    /// A tool reads on in this file.
    Read(String),
    /// A tool searches it.
    Search,
    /// A tool lists this folder.
    List(&'static str),
}

impl Piece {
    /// The characters that it takes, of `max` at most.
    pub fn demand(&self, max: usize) -> usize {
        let note = if self.goes_on { self.note() } else { 0 };
        (self.text.chars().count() + note).min(max)
    }

    /// Room for a note, in characters.
    fn note(&self) -> usize {
        // A path is quoted, and what needs it escaped.
        NOTE + if let Rest::Read(path) = &self.rest { path.escape_debug().count() } else { 0 }
    }

    /// As much of the text as fits, in whole lines where they are not too long, and a note about the
    /// rest: together no more than `room` characters, unless the note alone is.
    pub fn fit(&self, room: usize) -> String {
        if !self.goes_on && self.text.chars().count() <= room {
            return self.text.clone();
        }
        let room = room.saturating_sub(self.note());
        let end = self.text.char_indices().nth(room).map_or(self.text.len(), |(end, _)| end);
        let head = self.text.get(..end).unwrap_or_default();
        let line_end = head.rfind('\n').map_or(0, |at| at + 1);
        let is_in_lines = line_end > end / 2 || matches!(self.rest, Rest::List(_));
        let shown = if is_in_lines { head.get(..line_end).unwrap_or_default() } else { head };
        let place = match &self.rest {
            Rest::Read(path) if is_in_lines => {
                format!("read_file {path:?} from offset {}", shown.matches('\n').count() + 1)
            }
            Rest::Read(path) => format!("read_file {path:?} from byte_offset {}", shown.len()),
            Rest::Search => "memory_search".to_owned(),
            Rest::List(folder) => format!("list_files {folder:?}"),
        };
        let newline = if shown.is_empty() || shown.ends_with('\n') { "" } else { "\n" };
        format!("{shown}{newline}[cut here for want of room; for the rest use {place}]")
    }
}

/// The most that each may take so that all of them fit: who asks for less leaves it to the others.
pub fn level(demands: &[usize], total: usize) -> usize {
    let mut sorted = demands.to_vec();
    sorted.sort_unstable();
    let mut left = total;
    for (index, demand) in sorted.iter().enumerate() {
        let fair = left / (sorted.len() - index);
        if *demand > fair {
            return fair;
        }
        left -= demand;
    }
    total
}

/// The same text, in which none of these tags begins or ends, nor what looks like one. It has as many
/// characters as before.
pub fn without_tags(text: &str, tags: &[String]) -> String {
    let mut harmless = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, bracket) in text.match_indices(['<', '＜']) {
        let behind = text.get(at + bracket.len()..).unwrap_or_default();
        let name = behind.trim_start_matches(|c: char| {
            matches!(c, '/' | '／') || c.is_whitespace() || c.is_control() || is_unseen(c)
        });
        let is = |tag: &String| {
            let mut name = name.chars().filter(|c| !is_unseen(*c));
            tag.chars().all(|expected| name.next().is_some_and(|c| c.eq_ignore_ascii_case(&expected)))
        };
        if tags.iter().any(is) {
            harmless.push_str(text.get(copied..at).unwrap_or_default());
            harmless.push('‹');
            copied = at + bracket.len();
        }
    }
    harmless.push_str(text.get(copied..).unwrap_or_default());
    harmless
}

/// Whether a reader passes over a character without seeing it.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}
