//! The store of a session in the SQLite of its object: the log and the documents.

use super::{
    MAX_PARAMETERS, ObjectSql, Row, Statement, Value, insert_rows,
    log::{self, LogChange, LogRow, TailChange, pieces},
};
use crate::ports::{
    SessionStore, StoreError,
    session_store::{ACTIVITY, Batch, Page, Select},
};
use std::cell::Cell;

/// Longer text continues in further rows with the same key and increasing `part`. Replacing a document does
/// not read the old one: `parts` of its first row is the number of valid rows. The columns `log_…` are the tail of the
/// log, in the first row of [`ACTIVITY`].
const DOCUMENTS: &str = "
CREATE TABLE document (
    key TEXT NOT NULL, part INTEGER NOT NULL, parts INTEGER NOT NULL, json TEXT NOT NULL,
    log_kind TEXT, log_turn TEXT, log_json TEXT, log_seq INTEGER,
    PRIMARY KEY (key, part)
) WITHOUT ROWID;";

/// The columns that tables of earlier versions lack. The last one shows that all exist.
const ADDED_COLUMNS: [&str; 4] = ["log_kind TEXT", "log_turn TEXT", "log_json TEXT", "log_seq INTEGER"];

const DELETE: &str = "DELETE FROM document WHERE key = ?";

const PUT: &str = "INSERT OR REPLACE INTO document (key, part, parts, json)";

/// Writes a document and replaces the tail.
const PUT_WITH_TAIL: &str = "INSERT OR REPLACE INTO document \
                             (key, part, parts, json, log_seq, log_kind, log_turn, log_json) \
                             VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

/// Writes a document and appends to the tail. `||` with NULL is NULL.
const PUT_AND_APPEND: &str = "INSERT INTO document \
                              (key, part, parts, json, log_seq, log_kind, log_turn, log_json) \
                              VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
                              ON CONFLICT (key, part) DO UPDATE SET parts = excluded.parts, json = excluded.json, \
                              log_seq = coalesce(log_seq, excluded.log_seq), \
                              log_kind = coalesce(log_kind || ' ' || excluded.log_kind, log_kind, excluded.log_kind), \
                              log_turn = coalesce(log_turn || ' ' || excluded.log_turn, log_turn, excluded.log_turn), \
                              log_json = coalesce(log_json || char(10) || excluded.log_json, log_json, excluded.log_json)";

/// The store of a session.
pub struct SqlSessionStore<D> {
    db: D,
    ready: Cell<bool>,
    /// Length of the log's tail in bytes, if known. Nothing else writes to the database.
    tail_bytes: Cell<Option<usize>>,
}

impl<D: ObjectSql> SqlSessionStore<D> {
    /// Creates a store. Nothing is written before a session is created.
    pub fn new(db: D) -> Self {
        Self { db, ready: Cell::new(false), tail_bytes: Cell::new(None) }
    }

    /// Returns the database.
    pub fn database(&self) -> &D {
        &self.db
    }

    /// Returns the documents whose keys meet a condition, sorted by key.
    fn documents(&self, condition: &str, args: &[Value<'_>]) -> Result<Vec<(String, String)>, StoreError> {
        if !self.exists()? {
            return Ok(Vec::new());
        }
        let query =
            format!("SELECT key, json, part, parts FROM document WHERE {condition} ORDER BY key, part");
        let mut found: Vec<(String, String)> = Vec::new();
        let mut parts = 0;
        for row in self.db.query(&query, args)? {
            let (json, part) = (row.text(1).unwrap_or_default(), row.number(2));
            if part == 0 {
                parts = row.number(3);
                found.push((row.text(0).unwrap_or_default(), json));
            } else if let (true, Some((_, whole))) = (part < parts, found.last_mut()) {
                whole.push_str(&json);
            }
        }
        Ok(found)
    }

    fn create(&self) -> Result<(), StoreError> {
        self.db.execute(log::SCHEMA, &[])?;
        self.db.execute(DOCUMENTS, &[])
    }

    fn add_columns(&self) -> Result<(), StoreError> {
        let mut columns = ADDED_COLUMNS.iter();
        columns
            .try_for_each(|column| self.db.execute(&format!("ALTER TABLE document ADD COLUMN {column}"), &[]))
    }
}

/// Returns the statements of a commit, and the length of the log's tail after it.
fn statements(batch: &Batch, mut tail_bytes: usize) -> (Vec<Statement<'_>>, usize) {
    let mut statements = Vec::new();
    if tail_bytes > 0 && batch.delete.iter().any(|key| key == ACTIVITY) {
        statements.push(log::copy_tail());
        tail_bytes = 0;
    }
    let writes_activity = batch.put.iter().any(|(key, _)| key == ACTIVITY);
    let LogChange { statements: log, mut tail, tail_bytes } =
        log::append(&batch.append, tail_bytes, writes_activity);
    statements.extend(log);
    statements.extend(batch.delete.iter().map(|key| Statement::new(DELETE, [key.as_str().into()])));
    let mut values = Vec::new();
    for (key, json) in &batch.put {
        let parts = pieces(json).count() as u64;
        for (part, piece) in pieces(json).enumerate() {
            let row = [key.as_str().into(), (part as u64).into(), parts.into(), piece.into()];
            if key != ACTIVITY || part > 0 {
                values.extend(row);
                continue;
            }
            let (statement, records) = match std::mem::replace(&mut tail, TailChange::Append(None)) {
                TailChange::Append(records) => (PUT_AND_APPEND, records),
                TailChange::Replace(records) => (PUT_WITH_TAIL, records),
            };
            let mut args = Vec::from(row);
            args.extend(records.map_or([const { Value::Null }; 4], LogRow::into_values));
            statements.push(Statement::new(statement, args));
        }
    }
    statements.extend(insert_rows(PUT, 4, values));
    (statements, tail_bytes)
}

impl<D: ObjectSql> SessionStore for SqlSessionStore<D> {
    fn exists(&self) -> Result<bool, StoreError> {
        if !self.ready.get() {
            let found = self.db.query("SELECT sql FROM sqlite_master WHERE name = 'document'", &[])?;
            let Some(table) = found.first().and_then(|row| row.text(0)) else { return Ok(false) };
            if !table.contains("log_seq") {
                self.db.transaction(&mut || self.add_columns())?;
            }
            self.ready.set(true);
        }
        Ok(true)
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let exists = self.exists()?;
        // Unknown again if the commit fails.
        let before = match self.tail_bytes.take() {
            Some(bytes) => bytes,
            None if exists => log::tail_bytes(&self.db)?,
            None => 0,
        };
        let (statements, tail_bytes) = statements(&batch, before);
        match statements.as_slice() {
            // One statement is a transaction of its own.
            [one] if exists => self.db.execute(&one.sql, &one.args)?,
            all => self.db.transaction(&mut || {
                if !exists {
                    self.create()?;
                }
                all.iter().try_for_each(|Statement { sql, args }| self.db.execute(sql, args))
            })?,
        }
        self.ready.set(true);
        self.tail_bytes.set(Some(tail_bytes));
        Ok(())
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        if self.exists()? { log::last_seq(&self.db) } else { Ok(0) }
    }

    fn read(&self, select: Select<'_>) -> Result<Page, StoreError> {
        if self.exists()? { log::read(&self.db, select) } else { Ok(Page::default()) }
    }

    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self.documents("key = ?", &[key.into()])?.pop().map(|(_, json)| json))
    }

    fn get_all(&self, keys: &[String]) -> Result<Vec<Option<String>>, StoreError> {
        let mut found = Vec::new();
        for keys in keys.chunks(MAX_PARAMETERS) {
            let condition = format!("key IN ({})", vec!["?"; keys.len()].join(", "));
            let args: Vec<Value<'_>> = keys.iter().map(|key| key.as_str().into()).collect();
            found.extend(self.documents(&condition, &args)?);
        }
        let json_of = |key: &String| found.iter().find(|(own, _)| own == key).map(|(_, json)| json.clone());
        Ok(keys.iter().map(json_of).collect())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        // A range of the primary key, so that only matching rows are read.
        self.documents("key >= ? AND key < ?", &[prefix.into(), format!("{prefix}{}", char::MAX).into()])
    }

    fn keys(&self, from: &str, to: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        if !self.exists()? {
            return Ok(Vec::new());
        }
        // `+ 0`: SQLite would plan the statement anew at each call if the whole limit were a parameter.
        let query =
            "SELECT key FROM document WHERE key >= ? AND key < ? AND part = 0 ORDER BY key LIMIT ? + 0";
        let rows = self.db.query(query, &[from.into(), to.into(), (limit as u64).into()])?;
        Ok(rows.iter().filter_map(|row| row.text(0)).collect())
    }

    fn erase(&self) -> Result<(), StoreError> {
        if self.exists()? {
            self.db.transaction(&mut || {
                self.db.execute("DROP TABLE log", &[])?;
                self.db.execute("DROP TABLE document", &[])
            })?;
            self.ready.set(false);
            self.tail_bytes.set(None);
        }
        Ok(())
    }
}
