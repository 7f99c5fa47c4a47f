//! D1 databases, and the ports implemented on them.
//!
//! D1 binds numbers only as floating point, which represents integers below 2^53 exactly: milliseconds until
//! far beyond the year 9999.

#[cfg(feature = "fixtures")]
pub mod billed;
mod directory;
mod files;
mod memory;
mod shards;

pub use directory::D1Directory;
pub use files::D1Files;
pub use shards::Shards;

use super::timeout::{CallError, error_text, with_timeout};
use crate::platform::sql::{SqlError, moves::is_refusal};
use crate::types::{TenantId, Timestamp, json};
use serde::de::DeserializeOwned;
use serde_json::Value;
use shards::Placed;
use std::rc::Rc;
use std::time::Duration;
use worker::{D1Database, D1PreparedStatement, D1Result, D1Type};

/// Timeout of a statement or a batch.
const TIMEOUT: Duration = Duration::from_secs(10);

impl From<CallError> for SqlError {
    fn from(error: CallError) -> Self {
        Self::new(error)
    }
}

/// A statement of a batch: the SQL and its parameters.
pub type Statement<'a> = (&'a str, &'a [D1Type<'a>]);

/// A database.
#[derive(Clone)]
pub struct Database {
    binding: Rc<D1Database>,
    /// The tenant whose shard it is, if it was looked up for one, and the cache of the lookup.
    tenant: Option<(TenantId, Rc<Placed>)>,
}

impl Database {
    /// Creates the database of a binding.
    pub fn new(binding: D1Database) -> Self {
        Self { binding: Rc::new(binding), tenant: None }
    }

    /// Returns the database as the shard of a tenant.
    fn of_tenant(&self, tenant: &TenantId, placed: &Rc<Placed>) -> Self {
        let binding = Rc::clone(&self.binding);
        Self { binding, tenant: Some((tenant.clone(), Rc::clone(placed))) }
    }

    /// Runs a statement and returns its rows.
    pub async fn rows<T: DeserializeOwned>(
        &self,
        sql: &str,
        args: &[D1Type<'_>],
    ) -> Result<Vec<T>, SqlError> {
        self.ask(sql, args).await?.read()
    }

    /// Runs a statement and ignores its rows.
    pub async fn run(&self, sql: &str, args: &[D1Type<'_>]) -> Result<(), SqlError> {
        self.ask(sql, args).await.map(drop)
    }

    /// Runs a statement that ends in `RETURNING 1 AS done`. Returns whether it changed a row.
    pub async fn did(&self, sql: &str, args: &[D1Type<'_>]) -> Result<bool, SqlError> {
        self.ask(sql, args).await?.any()
    }

    /// Runs statements in one transaction, and returns the rows of each.
    pub async fn batch(&self, statements: &[Statement<'_>]) -> Result<Vec<Rows>, SqlError> {
        let prepared = statements.iter().map(|(sql, args)| self.prepare(sql, args));
        let batch = self.binding.batch(prepared.collect::<Result<_, _>>()?);
        let results = with_timeout(TIMEOUT, batch).await.map_err(|error| self.failed(error))?;
        results.into_iter().map(|result| self.rows_of(result)).collect()
    }

    async fn ask(&self, sql: &str, args: &[D1Type<'_>]) -> Result<Rows, SqlError> {
        let asked = with_timeout(TIMEOUT, self.prepare(sql, args)?.all()).await;
        self.rows_of(asked.map_err(|error| self.failed(error))?)
    }

    fn rows_of(&self, result: D1Result) -> Result<Rows, SqlError> {
        Rows::new(result).map_err(|error| self.failed(error))
    }

    /// Forgets the shard of a tenant that moves: a repeated request looks it up again.
    fn failed(&self, error: impl Into<SqlError>) -> SqlError {
        let error = error.into();
        if let Some((tenant, placed)) = self.tenant.as_ref().filter(|_| is_refusal(&error)) {
            placed.remove(tenant);
        }
        error
    }

    fn prepare(&self, sql: &str, args: &[D1Type<'_>]) -> Result<D1PreparedStatement, SqlError> {
        self.binding.prepare(sql).bind_refs(args).map_err(|error| SqlError::new(error_text(&error)))
    }
}

/// The rows of one statement.
pub struct Rows(D1Result);

impl Rows {
    fn new(result: D1Result) -> Result<Self, SqlError> {
        #[cfg(feature = "fixtures")]
        billed::count(&result);
        match result.error() {
            Some(error) => Err(SqlError::new(error)),
            None => Ok(Self(result)),
        }
    }

    /// Deserializes the rows.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, SqlError> {
        json::from_value(Value::Array(self.values()?)).map_err(SqlError::new)
    }

    /// Returns whether there are any rows.
    pub fn any(&self) -> Result<bool, SqlError> {
        Ok(!self.values()?.is_empty())
    }

    fn values(&self) -> Result<Vec<Value>, SqlError> {
        self.0.results().map_err(|error| SqlError::new(error_text(&error)))
    }
}

/// Returns a parameter with an integer below 2^53.
pub fn number(value: u64) -> D1Type<'static> {
    D1Type::Real(value as f64)
}

/// Returns a parameter with a time.
pub fn time(at: Timestamp) -> D1Type<'static> {
    number(at.0)
}

/// Returns a parameter with an optional text.
pub fn optional(text: Option<&str>) -> D1Type<'_> {
    text.map_or(D1Type::Null, D1Type::Text)
}

/// Returns a parameter with a list as JSON, for `json_each`.
pub fn list(items: impl Iterator<Item = impl AsRef<str>>) -> String {
    Value::from_iter(items.map(|item| item.as_ref().to_owned())).to_string()
}

/// Reads a time from a column.
pub fn timestamp(ms: f64) -> Timestamp {
    Timestamp(ms as u64)
}
