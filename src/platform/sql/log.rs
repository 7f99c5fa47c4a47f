//! The log of a session in the SQLite of its object.
//!
//! Rows are what storage is billed by, so consecutive records of a turn that are committed together share a row:
//! `seq` is the number of the first, `kind` lists their types, separated by spaces, and `json` has a line for each.
//! Longer text continues in further rows with the same `seq` and increasing `part`.

use super::Value;
use crate::ports::{
    StoreError,
    session_store::{PAGE_BYTES, Page, PageBuilder, Select, StoredRecord},
};

/// The statement that creates the log.
pub const SCHEMA: &str = "
CREATE TABLE log (
    seq INTEGER NOT NULL, part INTEGER NOT NULL, kind TEXT, turn TEXT, json TEXT NOT NULL,
    PRIMARY KEY (seq, part)
) WITHOUT ROWID;";

/// Maximum length of the text in one row, in bytes. A row may hold 2 MB.
const PIECE: usize = 1_000_000;

/// Maximum length of the text in a row that holds several records, in bytes. Small, because reading one of
/// them reads the row.
const ROW_OF_SEVERAL: usize = 32_000;

/// Number of rows that one statement inserts. A statement may have 100 parameters.
const ROWS_PER_INSERT: usize = 20;

/// The SQLite of an object.
pub trait ObjectSql {
    /// A row of a result.
    type Row: Row;

    /// Runs a statement with parameters `?` and returns its rows.
    ///
    /// # Errors
    /// The database failed.
    fn query(&self, sql: &str, args: &[Value<'_>]) -> Result<Vec<Self::Row>, StoreError>;
}

/// A row of a result.
pub trait Row {
    /// Returns the integer in a column; 0 if there is none.
    fn number(&self, column: u32) -> u64;

    /// Returns the text in a column; `None` if there is none.
    fn text(&self, column: u32) -> Option<String>;
}

/// A row of the log without its text.
struct Place {
    seq: u64,
    kinds: String,
    turn: Option<String>,
    /// Length of the text in its first part, in bytes.
    bytes: usize,
}

impl Place {
    /// Returns the number of the row's records that are selected.
    fn selected(&self, select: &Select<'_>) -> usize {
        let kinds = (self.seq..).zip(self.kinds.split(' '));
        kinds.filter(|(seq, kind)| select.selects(*seq, kind, self.turn.as_deref())).count()
    }

    /// Returns whether the text may continue in further rows.
    fn may_continue(&self) -> bool {
        self.bytes >= PIECE - 3
    }
}

/// Appends records.
///
/// # Errors
/// The database failed.
pub fn append(db: &impl ObjectSql, records: &[StoredRecord]) -> Result<(), StoreError> {
    let joined = joined(records);
    let mut rows = Vec::new();
    for row in &joined {
        for (part, piece) in pieces(&row.json).enumerate() {
            let (kind, turn) = match part {
                0 => (row.kind.as_str().into(), row.turn.as_deref().map_or(Value::Null, Value::from)),
                _ => (Value::Null, Value::Null),
            };
            rows.push([row.seq.into(), (part as u64).into(), kind, turn, piece.into()]);
        }
    }
    for rows in rows.chunks(ROWS_PER_INSERT) {
        let values = vec!["(?, ?, ?, ?, ?)"; rows.len()].join(", ");
        let insert = format!("INSERT INTO log (seq, part, kind, turn, json) VALUES {values}");
        db.query(&insert, rows.as_flattened())?;
    }
    Ok(())
}

/// Returns the sequence number of the last record; 0 for an empty log.
///
/// # Errors
/// The database failed.
pub fn last_seq(db: &impl ObjectSql) -> Result<u64, StoreError> {
    let newest = "SELECT seq, kind FROM log WHERE part = 0 ORDER BY seq DESC LIMIT 1";
    let rows = db.query(newest, &[])?;
    let last =
        |row: &_| Row::number(row, 0) + Row::text(row, 1).unwrap_or_default().split(' ').count() as u64 - 1;
    Ok(rows.first().map_or(0, last))
}

/// Reads a page. The lengths are read before the text, so that no text is read that the page has no room for.
///
/// # Errors
/// The database failed.
pub fn read(db: &impl ObjectSql, select: Select<'_>) -> Result<Page, StoreError> {
    let mut page = PageBuilder::new(&select);
    let places = places(db, &select)?;
    let wanted = within_page(&places, &select);
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(page.end()) };
    let mut args = vec![Value::from(first.seq.min(last.seq)), first.seq.max(last.seq).into()];
    let query = format!(
        "SELECT seq, json FROM log WHERE part = 0 AND seq >= ? AND seq <= ?{}",
        condition(&select, &mut args)
    );
    for (row, place) in db.query(&query, &args)?.into_iter().zip(wanted) {
        let mut json = row.text(1).unwrap_or_default();
        drop(row);
        if place.may_continue() {
            let rest = "SELECT json FROM log WHERE seq = ? AND part > 0 ORDER BY part";
            for row in db.query(rest, &[place.seq.into()])? {
                json.push_str(&row.text(0).unwrap_or_default());
            }
        }
        let records = records_of(place, json).into_iter();
        let mut records =
            records.filter(|record| select.selects(record.seq, &record.kind, record.turn.as_deref()));
        let fit = match select.newest_first {
            true => records.rev().all(|record| page.add(record)),
            false => records.all(|record| page.add(record)),
        };
        if !fit {
            break;
        }
    }
    let mut page = page.end();
    let selected: usize = places.iter().map(|place| place.selected(&select)).sum();
    page.more = selected > page.records.len();
    Ok(page)
}

/// Returns the rows with the first selected records, enough to see whether more follow a page.
fn places<D: ObjectSql>(db: &D, select: &Select<'_>) -> Result<Vec<Place>, StoreError> {
    // The record after `after` may be in a row that starts before it.
    let mut args = vec![Value::from(select.after.saturating_add(1))];
    let mut query = "SELECT seq, kind, turn, octet_length(json) FROM log WHERE part = 0 \
                     AND seq >= (SELECT coalesce(max(seq), 0) FROM log WHERE seq <= ?)"
        .to_owned();
    if let Some(before) = select.before {
        query.push_str(" AND seq < ?");
        args.push(before.into());
    }
    query.push_str(&condition(select, &mut args));
    // Of the first and the last row, maybe no record is selected.
    query.push_str(" LIMIT ?");
    args.push((select.page_limit() as u64 + 3).into());
    let place = |row: D::Row| Place {
        seq: row.number(0),
        kinds: row.text(1).unwrap_or_default(),
        turn: row.text(2),
        bytes: usize::try_from(row.number(3)).unwrap_or(usize::MAX),
    };
    Ok(db.query(&query, &args)?.into_iter().map(place).collect())
}

/// Returns the rows whose text a page needs.
fn within_page<'p>(places: &'p [Place], select: &Select<'_>) -> &'p [Place] {
    let skipped = places.iter().take_while(|place| place.selected(select) == 0).count();
    let places = places.get(skipped..).unwrap_or_default();
    let (mut count, mut bytes, mut rows) = (0, 0_usize, 0);
    for place in places {
        let size = if place.may_continue() { PAGE_BYTES } else { place.bytes };
        let selected = place.selected(select);
        let is_full = count >= select.page_limit() || bytes.saturating_add(size) > PAGE_BYTES;
        if selected == 0 || (count > 0 && is_full) {
            break;
        }
        (count, bytes, rows) = (count + selected, bytes + size, rows + 1);
    }
    places.get(..rows).unwrap_or_default()
}

/// Returns the part of a query that selects rows by turn and types, and sorts them.
fn condition<'a>(select: &Select<'a>, args: &mut Vec<Value<'a>>) -> String {
    let mut condition = String::new();
    if let Some(turn) = select.turn {
        condition.push_str(" AND turn = ?");
        args.push(turn.as_str().into());
    }
    if !select.kinds.is_empty() {
        let any = vec!["instr(' ' || kind || ' ', ?)"; select.kinds.len()].join(" OR ");
        condition.push_str(&format!(" AND ({any})"));
        args.extend(select.kinds.iter().map(|kind| Value::from(format!(" {kind} "))));
    }
    condition.push_str(if select.newest_first { " ORDER BY seq DESC" } else { " ORDER BY seq" });
    condition
}

/// Joins the records of a commit to rows of the log.
fn joined(records: &[StoredRecord]) -> Vec<StoredRecord> {
    let mut rows: Vec<StoredRecord> = Vec::new();
    for record in records {
        let fits = |row: &&mut StoredRecord| {
            row.turn == record.turn && row.json.len() + record.json.len() < ROW_OF_SEVERAL
        };
        match rows.last_mut().filter(fits) {
            Some(row) => {
                row.kind = format!("{} {}", row.kind, record.kind);
                row.json = format!("{}\n{}", row.json, record.json);
            }
            None => rows.push(record.clone()),
        }
    }
    rows
}

/// Returns the records in a row of the log. The JSON of a record has no line breaks.
fn records_of(place: &Place, json: String) -> Vec<StoredRecord> {
    let turn = place.turn.as_deref();
    let record = |seq: u64, kind: &str, json: String| StoredRecord {
        seq,
        kind: kind.to_owned(),
        turn: turn.map(Into::into),
        json,
    };
    let count = place.kinds.split(' ').count();
    if count == 1 {
        return vec![record(place.seq, &place.kinds, json)];
    }
    let records = (place.seq..).zip(place.kinds.split(' ')).zip(json.splitn(count, '\n'));
    records.map(|((seq, kind), json)| record(seq, kind, json.to_owned())).collect()
}

/// Splits text into at least one piece of at most a million bytes. A piece that is not the last is at most
/// three bytes shorter, so that it ends at a character boundary.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest?;
        let (piece, more) = all.split_at(all.floor_char_boundary(PIECE));
        rest = (!more.is_empty()).then_some(more);
        Some(piece)
    })
}
