//! The store of a session in the SQLite of its Durable Object.
//!
//! Every platform call uses an import that catches exceptions: an uncaught one would hang the request.
//! Numbers are bound as floating point, which the INTEGER columns convert back.

use super::exception;
use crate::ports::{
    SessionStore, StoreError,
    session_store::{Batch, Select, StoredRecord},
};
use js_sys::{Array, JsString};
use std::{cell::Cell, panic::AssertUnwindSafe};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use worker::Storage;

/// Maximum length of the text in one row, in bytes. A row may hold 2 MB.
const PIECE: usize = 1_000_000;

/// Maximum length of the text in a row that holds several records, in bytes. Small, because reading one of
/// them reads the row.
const ROW_OF_SEVERAL: usize = 32_000;

/// Number of rows that one statement inserts. A statement may have 100 parameters.
const ROWS_PER_INSERT: usize = 20;

/// Rows are what storage is billed by, so consecutive records of a turn that are committed together share a
/// row: `seq` is the number of the first, `kind` lists their types, separated by spaces, and `json` has a line
/// for each.
///
/// Longer text continues in further rows with the same key and increasing `part`. Replacing a document does
/// not read the old one: `parts` of its first row is the number of valid rows.
const SCHEMA: &str = "
CREATE TABLE log (
    seq INTEGER NOT NULL, part INTEGER NOT NULL, kind TEXT, turn TEXT, json TEXT NOT NULL,
    PRIMARY KEY (seq, part)
) WITHOUT ROWID;
CREATE TABLE document (
    key TEXT NOT NULL, part INTEGER NOT NULL, parts INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (key, part)
) WITHOUT ROWID;";

#[wasm_bindgen]
extern "C" {
    type RawStorage;
    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    fn transaction_sync(
        this: &RawStorage,
        work: &mut dyn FnMut() -> Result<JsValue, JsValue>,
    ) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, catch, getter)]
    fn sql(this: &RawStorage) -> Result<RawSql, JsValue>;

    type RawSql;
    #[wasm_bindgen(method, catch, variadic)]
    fn exec(this: &RawSql, query: &str, bindings: Array) -> Result<RawCursor, JsValue>;

    type RawCursor;
    #[wasm_bindgen(method, catch)]
    fn raw(this: &RawCursor) -> Result<RawRows, JsValue>;

    type RawRows;
    #[wasm_bindgen(method, catch, js_name = toArray)]
    fn to_array(this: &RawRows) -> Result<Array, JsValue>;
}

/// The SQLite database of an object.
pub struct SqlSessionStore {
    storage: Storage,
    ready: Cell<bool>,
}

impl SqlSessionStore {
    /// Creates a store. Nothing is written before a session is created.
    pub fn new(storage: Storage) -> Self {
        Self { storage, ready: Cell::new(false) }
    }

    fn raw(&self) -> &RawStorage {
        let storage: &JsValue = self.storage.as_raw().as_ref();
        storage.unchecked_ref()
    }

    fn exec(&self, query: &str, bindings: &[JsValue]) -> Result<RawCursor, StoreError> {
        let sql = self.raw().sql().map_err(thrown)?;
        sql.exec(query, bindings.iter().collect()).map_err(thrown)
    }

    fn rows(&self, query: &str, bindings: &[JsValue]) -> Result<Vec<Array>, StoreError> {
        let rows = self.exec(query, bindings)?.raw().and_then(|rows| rows.to_array()).map_err(thrown)?;
        Ok(rows.iter().map(JsCast::unchecked_into).collect())
    }

    fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
        if !self.ready.get() && !self.exists()? {
            self.exec(SCHEMA, &[])?;
        }
        let mut rows = Vec::new();
        for row in log_rows(&batch.append) {
            for (part, piece) in pieces(&row.json).enumerate() {
                let (kind, turn) = match part {
                    0 => (row.kind.as_str().into(), row.turn.as_deref().map_or(JsValue::NULL, Into::into)),
                    _ => (JsValue::NULL, JsValue::NULL),
                };
                rows.push([number(row.seq), number(part as u64), kind, turn, piece.into()]);
            }
        }
        for rows in rows.chunks(ROWS_PER_INSERT) {
            let values = vec!["(?, ?, ?, ?, ?)"; rows.len()].join(", ");
            self.exec(
                &format!("INSERT INTO log (seq, part, kind, turn, json) VALUES {values}"),
                rows.as_flattened(),
            )?;
        }
        for key in &batch.delete {
            self.exec("DELETE FROM document WHERE key = ?", &[key.as_str().into()])?;
        }
        for (key, json) in &batch.put {
            let parts = number(pieces(json).count() as u64);
            for (part, piece) in pieces(json).enumerate() {
                let bindings = [key.as_str().into(), number(part as u64), parts.clone(), piece.into()];
                self.exec(
                    "INSERT OR REPLACE INTO document (key, part, parts, json) VALUES (?, ?, ?, ?)",
                    &bindings,
                )?;
            }
        }
        Ok(())
    }
}

impl SessionStore for SqlSessionStore {
    fn exists(&self) -> Result<bool, StoreError> {
        if !self.ready.get() {
            let found = self.rows("SELECT 1 FROM sqlite_master WHERE name = 'document'", &[])?;
            self.ready.set(!found.is_empty());
        }
        Ok(self.ready.get())
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let mut failure = None;
        let mut state = AssertUnwindSafe((self, &batch, &mut failure));
        let result = self.raw().transaction_sync(&mut move || {
            let state = &mut state;
            let (store, batch, failure) = (&state.0.0, state.0.1, &mut *state.0.2);
            match store.apply(batch) {
                Ok(()) => Ok(JsValue::UNDEFINED),
                Err(error) => {
                    let message = JsValue::from_str(&error.0);
                    *failure = Some(error);
                    Err(message)
                }
            }
        });
        match (failure, result) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(thrown(error)),
            (None, Ok(_)) => {
                self.ready.set(true);
                Ok(())
            }
        }
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        let newest = "SELECT seq, kind FROM log WHERE part = 0 ORDER BY seq DESC LIMIT 1";
        let rows = self.rows(newest, &[])?;
        let last = |row: &Array| integer(&row.get(0)) + text(&row.get(1)).split(' ').count() as u64 - 1;
        Ok(rows.first().map_or(0, last))
    }

    fn read(&self, select: Select<'_>) -> Result<Vec<StoredRecord>, StoreError> {
        // The record after `after` may be in a row that starts before it.
        let mut query = "SELECT seq, kind, turn, json FROM log WHERE part = 0 \
                         AND seq >= (SELECT coalesce(max(seq), 0) FROM log WHERE seq <= ?)"
            .to_owned();
        let mut bindings = vec![number(select.after.saturating_add(1))];
        if let Some(before) = select.before {
            query.push_str(" AND seq < ?");
            bindings.push(number(before));
        }
        if let Some(turn) = select.turn {
            query.push_str(" AND turn = ?");
            bindings.push(turn.as_str().into());
        }
        if !select.kinds.is_empty() {
            let any = vec!["instr(' ' || kind || ' ', ?)"; select.kinds.len()].join(" OR ");
            query.push_str(&format!(" AND ({any})"));
            bindings.extend(select.kinds.iter().map(|kind| JsValue::from(format!(" {kind} "))));
        }
        query.push_str(if select.newest_first { " ORDER BY seq DESC" } else { " ORDER BY seq" });
        if select.limit < i32::MAX as usize {
            // Of the first and the last row, maybe no record is selected.
            query.push_str(" LIMIT ?");
            bindings.push(number(select.limit as u64 + 2));
        }
        let mut records = Vec::new();
        for row in self.rows(&query, &bindings)? {
            let (seq, mut json) = (integer(&row.get(0)), text(&row.get(3)));
            if json.len() >= PIECE - 3 {
                let rest = "SELECT json FROM log WHERE seq = ? AND part > 0 ORDER BY part";
                for row in self.rows(rest, &[number(seq)])? {
                    json.push_str(&text(&row.get(0)));
                }
            }
            let row = StoredRecord {
                seq,
                kind: text(&row.get(1)),
                turn: row.get(2).as_string().map(Into::into),
                json,
            };
            records.extend(select.read(records_of(&row).iter()));
        }
        records.truncate(select.limit);
        Ok(records)
    }

    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let rows =
            self.rows("SELECT json, parts FROM document WHERE key = ? ORDER BY part", &[key.into()])?;
        let parts = rows.first().map(|row| integer(&row.get(1)));
        Ok(parts.map(|parts| rows.iter().take(parts as usize).map(|row| text(&row.get(0))).collect()))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        // A range of the primary key, so that only matching rows are read.
        let query =
            "SELECT key, json, part, parts FROM document WHERE key >= ? AND key < ? ORDER BY key, part";
        let bindings = [prefix.into(), format!("{prefix}{}", char::MAX).into()];
        let mut found: Vec<(String, String)> = Vec::new();
        let mut parts = 0;
        for row in self.rows(query, &bindings)? {
            let (json, part) = (text(&row.get(1)), integer(&row.get(2)));
            if part == 0 {
                parts = integer(&row.get(3));
                found.push((text(&row.get(0)), json));
            } else if let (true, Some((_, whole))) = (part < parts, found.last_mut()) {
                whole.push_str(&json);
            }
        }
        Ok(found)
    }

    fn erase(&self) -> Result<(), StoreError> {
        if self.exists()? {
            self.exec("DROP TABLE log; DROP TABLE document;", &[])?;
            self.ready.set(false);
        }
        Ok(())
    }
}

/// Joins the records of a commit to rows of the log.
fn log_rows(records: &[StoredRecord]) -> Vec<StoredRecord> {
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
fn records_of(row: &StoredRecord) -> Vec<StoredRecord> {
    let kinds = row.kind.split(' ');
    let count = kinds.clone().count();
    let record = |((seq, kind), json): ((u64, &str), &str)| StoredRecord {
        seq,
        kind: kind.to_owned(),
        turn: row.turn.clone(),
        json: json.to_owned(),
    };
    (row.seq..).zip(kinds).zip(row.json.splitn(count, '\n')).map(record).collect()
}

/// Splits text into at least one piece of at most [`PIECE`] bytes. A piece that is not the last is at most
/// three bytes shorter, so that it ends at a character boundary.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest?;
        let (piece, more) = all.split_at(all.floor_char_boundary(PIECE));
        rest = (!more.is_empty()).then_some(more);
        Some(piece)
    })
}

/// Numbers of a log are far below 2^53, so floating point is exact.
#[allow(clippy::cast_precision_loss)]
fn number(value: u64) -> JsValue {
    JsValue::from_f64(value as f64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn integer(value: &JsValue) -> u64 {
    value.as_f64().unwrap_or_default() as u64
}

fn text(value: &JsValue) -> String {
    value.dyn_ref::<JsString>().map(String::from).unwrap_or_default()
}

fn thrown(error: JsValue) -> StoreError {
    StoreError(exception::thrown(error))
}
