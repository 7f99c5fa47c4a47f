//! The SQLite of a Durable Object.
//!
//! Every platform call uses an import that catches exceptions: an uncaught one would hang the request.
//! Numbers are bound as floating point, which the INTEGER columns convert back.

use super::exception;
use crate::platform::sql::{ObjectSql, Row, Value};
use crate::ports::StoreError;
use js_sys::{Array, JsString};
use std::panic::AssertUnwindSafe;
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use worker::Storage;

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
pub struct ObjectDatabase(pub Storage);

impl ObjectDatabase {
    fn raw(&self) -> &RawStorage {
        let storage: &JsValue = self.0.as_raw().as_ref();
        storage.unchecked_ref()
    }

    fn exec(&self, sql: &str, args: &[Value<'_>]) -> Result<RawCursor, StoreError> {
        let bindings = args.iter().map(binding).collect();
        self.raw().sql().and_then(|database| database.exec(sql, bindings)).map_err(thrown)
    }
}

impl ObjectSql for ObjectDatabase {
    type Row = Array;

    fn query(&self, sql: &str, args: &[Value<'_>]) -> Result<Vec<Array>, StoreError> {
        let rows = self.exec(sql, args)?.raw().and_then(|rows| rows.to_array()).map_err(thrown)?;
        Ok(rows.iter().map(JsCast::unchecked_into).collect())
    }

    fn execute(&self, sql: &str, args: &[Value<'_>]) -> Result<(), StoreError> {
        self.exec(sql, args).map(drop)
    }

    fn transaction(&self, work: &mut dyn FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let mut failure = None;
        let mut state = AssertUnwindSafe((work, &mut failure));
        let result = self.raw().transaction_sync(&mut move || {
            let (work, failure) = &mut *state;
            work().map(|()| JsValue::UNDEFINED).map_err(|error| {
                let message = JsValue::from_str(&error.0);
                **failure = Some(error);
                message
            })
        });
        match (failure, result) {
            (Some(error), _) => Err(error),
            (None, result) => result.map(drop).map_err(thrown),
        }
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

fn thrown(error: JsValue) -> StoreError {
    StoreError(exception::thrown(error))
}
