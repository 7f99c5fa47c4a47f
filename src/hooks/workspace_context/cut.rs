//! Fits texts into a limited number of characters, with a note on how to read the rest.

/// Maximum length of a note in characters, not counting the path in it.
const MAX_NOTE: usize = 120;

/// A text, or the start of one.
pub struct Piece {
    /// The available part of the text.
    pub text: String,
    /// Whether the text continues after that part.
    pub is_truncated: bool,
    /// How the model can read the rest.
    pub rest: Rest,
    /// Whether the piece gets its room before the others.
    pub comes_first: bool,
}

/// How the model can read the rest of a text.
pub enum Rest {
    /// With `read_file` and this path.
    Read(String),
    /// With `memory_search`.
    Search,
    /// With `list_files` and this folder.
    List(&'static str),
    /// Not at all, because a file of the user has the same path.
    Hidden,
}

impl Piece {
    pub fn new(text: String, is_truncated: bool, rest: Rest) -> Self {
        Self { text, is_truncated, rest, comes_first: true }
    }

    /// Lets the piece have the room that others leave.
    pub fn after_others(self) -> Self {
        Self { comes_first: false, ..self }
    }

    /// Returns the number of characters the piece would take, at most `max`.
    pub fn demand(&self, max: usize) -> usize {
        let note = if self.is_truncated { self.note() } else { 0 };
        (self.text.chars().count() + note).min(max)
    }

    /// Returns the number of characters to reserve for the note.
    pub fn note(&self) -> usize {
        // The path is quoted and escaped.
        MAX_NOTE + if let Rest::Read(path) = &self.rest { path.escape_debug().count() } else { 0 }
    }

    /// Returns as much of the text as fits into `room` characters together with a note on the rest, in whole
    /// lines unless they are too long. Exceeds `room` only if the note alone does.
    pub fn fit(&self, room: usize) -> String {
        if !self.is_truncated && self.text.chars().count() <= room {
            return self.text.clone();
        }
        let room = room.saturating_sub(self.note());
        let end = self.text.char_indices().nth(room).map_or(self.text.len(), |(end, _)| end);
        let head = self.text.get(..end).unwrap_or_default();
        let line_end = head.rfind('\n').map_or(0, |at| at + 1);
        let is_in_lines = line_end > end / 2 || matches!(self.rest, Rest::List(_));
        let shown = if is_in_lines { head.get(..line_end).unwrap_or_default() } else { head };
        let newline = if shown.is_empty() || shown.ends_with('\n') { "" } else { "\n" };
        let place = match &self.rest {
            Rest::Hidden => return format!("{shown}{newline}[truncated; a file of the user hides the rest]"),
            Rest::Read(path) if is_in_lines => {
                format!("read_file {path:?} from offset {}", shown.matches('\n').count() + 1)
            }
            Rest::Read(path) => format!("read_file {path:?} from byte_offset {}", shown.len()),
            Rest::Search => "memory_search".to_owned(),
            Rest::List(folder) => format!("list_files {folder:?}"),
        };
        format!("{shown}{newline}[truncated; to read the rest use {place}]")
    }
}

/// Returns the largest equal share for all demands within `total`. Demands below the share leave their
/// surplus to the others.
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
