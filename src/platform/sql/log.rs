//! The log of a session in the SQLite of its object.
//!
//! Rows are what storage is billed by, so small records share a row: `seq` is the number of the first, `kind` lists
//! their types and `turn` their turns, separated by spaces, and `json` has a line for each. Longer text continues in
//! further rows with the same `seq` and increasing `part`.
//!
//! The newest records are not in the table yet. They are the *tail*: one such row, in columns of the document
//! [`ACTIVITY`](crate::ports::session_store::ACTIVITY), which the same commits write.

mod read;

use super::{ObjectSql, Row, Statement, Value, insert_rows};
use crate::ports::{StoreError, session_store::StoredRecord};
pub(super) use read::{last_seq, read};

/// The statement that creates the log.
pub(super) const SCHEMA: &str = "
CREATE TABLE log (
    seq INTEGER NOT NULL, part INTEGER NOT NULL, kind TEXT, turn TEXT, json TEXT NOT NULL,
    PRIMARY KEY (seq, part)
) WITHOUT ROWID;";

/// Maximum length of the text in one row, in bytes. A row may hold 2 MB.
const PIECE: usize = 1_000_000;

/// Maximum length of the text in a row that holds several records, and in the tail, in bytes. Small, because reading one
/// of them reads the row, and each commit rewrites the tail.
const ROW_OF_SEVERAL: usize = 32_000;

/// The entry in `turn` of a record that belongs to no turn.
const NO_TURN: &str = "-";

/// The condition for the row of a document that has the tail in its columns `log_…`, if there is a tail. The key is
/// [`ACTIVITY`](crate::ports::session_store::ACTIVITY).
const HAS_TAIL: &str = "key = 'state/activity' AND part = 0 AND log_seq IS NOT NULL";

/// Returns the tail as a table with the columns of the log.
fn tail_row() -> String {
    format!(
        "(SELECT log_seq AS seq, 0 AS part, log_kind AS kind, log_turn AS turn, log_json AS json \
         FROM document WHERE {HAS_TAIL})"
    )
}

/// A row of the log.
pub(super) struct LogRow {
    seq: u64,
    kinds: String,
    turns: String,
    json: String,
}

impl LogRow {
    /// Joins records to one row; `None` if there are none.
    fn joined(records: &[StoredRecord]) -> Option<Self> {
        let (first, others) = records.split_first()?;
        let mut row = Self::new(first);
        others.iter().for_each(|record| row.push(record));
        Some(row)
    }

    fn new(record: &StoredRecord) -> Self {
        Self {
            seq: record.seq,
            kinds: record.kind.clone(),
            turns: turn_of(record).to_owned(),
            json: record.json.clone(),
        }
    }

    fn push(&mut self, record: &StoredRecord) {
        for (list, separator, item) in [
            (&mut self.kinds, ' ', record.kind.as_str()),
            (&mut self.turns, ' ', turn_of(record)),
            (&mut self.json, '\n', &record.json),
        ] {
            list.push(separator);
            list.push_str(item);
        }
    }

    /// Returns the values of the columns `log_seq`, `log_kind`, `log_turn` and `log_json`.
    pub(super) fn into_values(self) -> [Value<'static>; 4] {
        let Self { seq, kinds, turns, json } = self;
        [seq.into(), kinds.into(), turns.into(), json.into()]
    }
}

fn turn_of(record: &StoredRecord) -> &str {
    record.turn.as_deref().map_or(NO_TURN, |turn| turn)
}

/// What the statement that writes the tail's document does to the tail.
pub(super) enum TailChange {
    /// Appends these records, if any.
    Append(Option<LogRow>),
    /// Replaces it by these records, if any.
    Replace(Option<LogRow>),
}

/// How a commit changes the log.
pub(super) struct LogChange {
    /// The first statements of the commit.
    pub(super) statements: Vec<Statement<'static>>,
    /// What the statement that writes the tail's document does to the tail.
    pub(super) tail: TailChange,
    /// Length of the tail after the commit, in bytes.
    pub(super) tail_bytes: usize,
}

/// Returns the length of the tail in bytes; 0 if there is none.
///
/// # Errors
/// The database failed.
pub(super) fn tail_bytes(db: &impl ObjectSql) -> Result<usize, StoreError> {
    let tail = db.query(&format!("SELECT octet_length(log_json) FROM document WHERE {HAS_TAIL}"), &[])?;
    Ok(tail.first().map_or(0, |row| usize::try_from(row.number(0)).unwrap_or(usize::MAX)))
}

/// Appends records: to the tail, which has `tail_bytes`, if they fit and the commit writes its document, or else to the
/// table.
pub(super) fn append(records: &[StoredRecord], tail_bytes: usize, writes_document: bool) -> LogChange {
    let mut statements = Vec::new();
    if records.is_empty() {
        return LogChange { statements, tail: TailChange::Append(None), tail_bytes };
    }
    let added: usize = records.iter().map(|record| record.json.len() + 1).sum();
    let fits = writes_document && added <= ROW_OF_SEVERAL;
    if fits && tail_bytes.saturating_add(added) <= ROW_OF_SEVERAL {
        // A line break precedes each record but the first of the tail.
        let tail_bytes = (tail_bytes + added).saturating_sub(usize::from(tail_bytes == 0));
        return LogChange { statements, tail: TailChange::Append(LogRow::joined(records)), tail_bytes };
    }
    if tail_bytes > 0 {
        statements.push(copy_tail());
    }
    if fits {
        return LogChange {
            statements,
            tail: TailChange::Replace(LogRow::joined(records)),
            tail_bytes: added - 1,
        };
    }
    if tail_bytes > 0 && !writes_document {
        let nothing = "log_seq = NULL, log_kind = NULL, log_turn = NULL, log_json = NULL";
        statements.push(Statement::new(format!("UPDATE document SET {nothing} WHERE {HAS_TAIL}"), []));
    }
    statements.extend(insert_rows("INSERT INTO log (seq, part, kind, turn, json)", 5, values(rows(records))));
    LogChange { statements, tail: TailChange::Replace(None), tail_bytes: 0 }
}

/// Returns the statement that copies the tail to the table.
pub(super) fn copy_tail() -> Statement<'static> {
    let columns = "seq, part, kind, turn, json";
    Statement::new(format!("INSERT INTO log ({columns}) SELECT {columns} FROM {}", tail_row()), [])
}

/// Joins records to rows of at most [`ROW_OF_SEVERAL`] bytes of text, or one record each.
fn rows(records: &[StoredRecord]) -> Vec<LogRow> {
    let mut rows: Vec<LogRow> = Vec::new();
    for record in records {
        match rows.last_mut().filter(|row| row.json.len() + record.json.len() < ROW_OF_SEVERAL) {
            Some(row) => row.push(record),
            None => rows.push(LogRow::new(record)),
        }
    }
    rows
}

/// Returns the columns `seq`, `part`, `kind`, `turn` and `json` of the rows in the table, one row after the other.
fn values(rows: Vec<LogRow>) -> Vec<Value<'static>> {
    let mut values = Vec::new();
    for LogRow { seq, kinds, turns, json } in rows {
        // The first part has the lists.
        let mut lists = [kinds.into(), turns.into()];
        for (part, piece) in pieces(&json).enumerate() {
            let [kinds, turns] = std::mem::replace(&mut lists, [Value::Null, Value::Null]);
            values.extend([seq.into(), (part as u64).into(), kinds, turns, piece.to_owned().into()]);
        }
    }
    values
}

/// Splits text into at least one piece of at most a million bytes. A piece that is not the last is at most
/// three bytes shorter, so that it ends at a character boundary.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest?;
        let (piece, more) = all.split_at(all.floor_char_boundary(PIECE));
        rest = (!more.is_empty()).then_some(more);
        Some(piece)
    })
}
