//! What commands print: text for people, or with `--json` one JSON value on each line.

use crate::error::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
};

/// Maximum number of characters of a value in a line.
const LINE: usize = 160;

/// How a command prints.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether the caller wants JSON.
    pub json: bool,
}

impl Output {
    /// Prints a value: as JSON, or as the text that `text` makes of it.
    ///
    /// # Errors
    /// A closed standard output.
    pub fn value(self, value: &Value, text: impl FnOnce(&Value) -> String) -> Result<()> {
        if self.json { self.line(&value.to_string()) } else { self.line(&text(value)) }
    }

    /// Prints a list: each entry as a line of JSON, or all of them as a table of these fields.
    ///
    /// # Errors
    /// A closed standard output.
    pub fn list(self, entries: &[Value], fields: &[&str]) -> Result<()> {
        if self.json {
            return entries.iter().try_for_each(|entry| self.line(&entry.to_string()));
        }
        let rows: Vec<Vec<String>> =
            entries.iter().map(|entry| fields.iter().map(|field| cell(&entry[*field])).collect()).collect();
        if rows.is_empty() {
            self.note("nothing found");
            return Ok(());
        }
        self.line(&table(fields, &rows))
    }

    /// Prints a line to standard output.
    ///
    /// # Errors
    /// A closed standard output.
    pub fn line(self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        Ok(writeln!(out, "{}", self.shown(text))?)
    }

    /// Prints a piece of text to standard output at once.
    ///
    /// # Errors
    /// A closed standard output.
    pub fn piece(self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(self.shown(text).as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints a remark for people, which is not part of the result. A closed standard error does not matter.
    pub fn note(self, text: &str) {
        if !self.json {
            let _ = writeln!(io::stderr(), "{}", without_controls(text));
        }
    }

    /// Returns the text as it may be printed: a model or a file must not control the terminal.
    fn shown(self, text: &str) -> Cow<'_, str> {
        if self.json {
            escaped(text)
        } else if io::stdout().is_terminal() {
            without_controls(text)
        } else {
            text.into()
        }
    }

    /// Starts a progress bar for work of this many units, which appears on a terminal only.
    pub fn progress(self, total: u64, what: &'static str) -> ProgressBar {
        self.bar(ProgressBar::new(total), what, "{msg} {wide_bar} {pos}/{len}")
    }

    /// Starts a counter of bytes whose number is not known before, which appears on a terminal only.
    pub fn byte_counter(self, what: &'static str) -> ProgressBar {
        self.bar(ProgressBar::no_length(), what, "{msg} {spinner} {bytes}")
    }

    fn bar(self, bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
        if self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = bar.with_message(what);
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

/// Removes control characters, and with them escape sequences, but not line breaks and tabs.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    let is_removed = |c: char| is_control(c) && c != '\n' && c != '\t';
    if text.contains(is_removed) { text.replace(is_removed, "").into() } else { text.into() }
}

/// Escapes the control characters of JSON that may stay as they are in its strings.
pub fn escaped(json: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_control(c) && c >= ' ';
    if !json.contains(is_escaped) {
        return json.into();
    }
    let mut text = String::new();
    for c in json.chars() {
        if is_escaped(c) {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text.into()
}

/// Returns whether a character controls the terminal, or the direction of the text around it, which can hide what a text
/// says.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text of a value in a table.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.lines().next().unwrap_or_default().to_owned(),
        Value::Array(entries) if entries.iter().all(Value::is_string) => {
            entries.iter().map(cell).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

/// Aligns the columns of a table. Only the last column may be long.
fn table(fields: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = fields.iter().map(|field| field.replace('_', " ")).collect();
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> =
        (0..fields.len()).map(|at| all().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the fields of an object, one on each line.
pub fn fields(value: &Value) -> String {
    let entries = value.as_object().into_iter().flatten();
    let shown = entries.filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}: {text}")
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// Returns a value in one line that is not too long.
pub fn short(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line: String = without_controls(&text).replace(['\n', '\t'], " ");
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(without_controls("a\u{1b}[2Jb\r\n\tc\u{9b}d"), "a[2Jb\n\tcd");
        assert_eq!(without_controls("a\u{202e}b"), "ab");
        let json = json!({"text": "a\u{9b}b\u{202e}\u{7f}\nü"}).to_string();
        assert_eq!(escaped(&json), r#"{"text":"a\u009bb\u202e\u007f\nü"}"#);
        assert_eq!(
            serde_json::from_str::<Value>(&escaped(&json)).unwrap(),
            serde_json::from_str::<Value>(&json).unwrap()
        );
    }

    #[test]
    fn a_table_has_aligned_columns() {
        let rows = [
            vec![cell(&json!("a")), cell(&json!(["chat", "read"])), cell(&Value::Null)],
            vec![cell(&json!("long")), cell(&json!(7)), cell(&json!("two\nlines"))],
        ];
        let text = table(&["id", "scopes", "last_used"], &rows);
        assert_eq!(text, "id    scopes     last used\na     chat,read  –\nlong  7          two");
    }
}
