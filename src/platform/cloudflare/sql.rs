//! The store of a session in the SQLite of its Durable Object.
//!
//! Every platform call uses an import that catches exceptions: an uncaught one would hang the request.
//! Numbers are bound as floating point, which the INTEGER columns convert back.

use super::exception;
use crate::platform::sql::{
    Value,
    log::{self, ObjectSql, Row, pieces},
};
use crate::ports::{
    SessionStore, StoreError,
    session_store::{Batch, Page, Select},
};
use js_sys::{Array, JsString};
use std::{cell::Cell, panic::AssertUnwindSafe};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use worker::Storage;

/// Longer text continues in further rows with the same key and increasing `part`. Replacing a document does
/// not read the old one: `parts` of its first row is the number of valid rows.
const DOCUMENTS: &str = "
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
            self.exec(&format!("{}{DOCUMENTS}", log::SCHEMA), &[])?;
        }
        log::append(self, &batch.append)?;
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
        log::last_seq(self)
    }

    fn read(&self, select: Select<'_>) -> Result<Page, StoreError> {
        log::read(self, select)
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

    fn keys(&self, from: &str, to: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        // The first commit of a session creates the tables, and may need the keys.
        if !self.exists()? {
            return Ok(Vec::new());
        }
        let query = format!(
            "SELECT key FROM document WHERE key >= ? AND key < ? AND part = 0 ORDER BY key LIMIT {limit}"
        );
        Ok(self.rows(&query, &[from.into(), to.into()])?.iter().map(|row| text(&row.get(0))).collect())
    }

    fn erase(&self) -> Result<(), StoreError> {
        if self.exists()? {
            self.exec("DROP TABLE log; DROP TABLE document;", &[])?;
            self.ready.set(false);
        }
        Ok(())
    }
}

impl ObjectSql for SqlSessionStore {
    type Row = Array;

    fn query(&self, sql: &str, args: &[Value<'_>]) -> Result<Vec<Array>, StoreError> {
        let bindings: Vec<JsValue> = args.iter().map(binding).collect();
        self.rows(sql, &bindings)
    }
}

impl Row for Array {
    fn number(&self, column: u32) -> u64 {
        integer(&self.get(column))
    }

    fn text(&self, column: u32) -> Option<String> {
        self.get(column).dyn_ref::<JsString>().map(String::from)
    }
}

fn binding(value: &Value<'_>) -> JsValue {
    match value {
        Value::Number(value) => number(*value),
        Value::Text(text) => text.as_ref().into(),
        Value::Null => JsValue::NULL,
    }
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
