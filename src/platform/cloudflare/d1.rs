//! D1: statements, and what is kept by them.
//!
//! D1 takes numbers only as floating point, which holds whole ones below 2^53 exactly: milliseconds
//! until far beyond the year 9999.

#[cfg(feature = "fixtures")]
pub mod billed;
mod directory;
mod files;
mod memory;
mod shards;

pub use directory::D1Directory;
pub use files::D1Files;
pub use shards::Shards;

use super::answer::{answer, said};
use crate::types::{Timestamp, json};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::rc::Rc;
use worker::{D1Database, D1PreparedStatement, D1Result, D1Type};

/// How long a statement, or a batch of them, may take in milliseconds.
const PATIENCE_MS: u64 = 10_000;

/// A database has no answer, or none that can be read. The words are for our log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(String);

/// One statement of a batch: SQL and its arguments.
pub type Statement<'a> = (&'a str, &'a [D1Type<'a>]);

/// A database.
#[derive(Clone)]
pub struct Database(Rc<D1Database>);

impl Database {
    /// The database of a binding.
    pub fn new(binding: D1Database) -> Self {
        Self(Rc::new(binding))
    }

    /// Runs a statement, writing or reading, and returns its rows.
    pub async fn rows<T: DeserializeOwned>(&self, sql: &str, args: &[D1Type<'_>]) -> Result<Vec<T>, Failed> {
        self.ask(sql, args).await?.read()
    }

    /// Runs a statement whose rows nobody needs.
    pub async fn run(&self, sql: &str, args: &[D1Type<'_>]) -> Result<(), Failed> {
        self.ask(sql, args).await.map(drop)
    }

    /// Whether a statement that ends in `RETURNING 1 AS done` did anything.
    pub async fn did(&self, sql: &str, args: &[D1Type<'_>]) -> Result<bool, Failed> {
        self.ask(sql, args).await?.any()
    }

    /// Runs statements as one transaction, all or none of them, and returns the rows of each.
    pub async fn batch(&self, statements: &[Statement<'_>]) -> Result<Vec<Rows>, Failed> {
        let prepared = statements.iter().map(|(sql, args)| self.prepare(sql, args));
        let batch = self.0.batch(prepared.collect::<Result<_, _>>()?);
        let results = answer(PATIENCE_MS, batch).await.map_err(Failed)?;
        results.into_iter().map(Rows::new).collect()
    }

    async fn ask(&self, sql: &str, args: &[D1Type<'_>]) -> Result<Rows, Failed> {
        Rows::new(answer(PATIENCE_MS, self.prepare(sql, args)?.all()).await.map_err(Failed)?)
    }

    fn prepare(&self, sql: &str, args: &[D1Type<'_>]) -> Result<D1PreparedStatement, Failed> {
        self.0.prepare(sql).bind_refs(args).map_err(|error| Failed(said(error)))
    }
}

/// The rows of one statement.
pub struct Rows(D1Result);

impl Rows {
    fn new(result: D1Result) -> Result<Self, Failed> {
        #[cfg(feature = "fixtures")]
        billed::count(&result);
        match result.error() {
            Some(error) => Err(Failed(error)),
            None => Ok(Self(result)),
        }
    }

    /// The rows as values, by the one reader of the house.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, Failed> {
        json::from_value(Value::Array(self.values()?)).map_err(|misfit| Failed(misfit.to_string()))
    }

    /// Whether there is any.
    pub fn any(&self) -> Result<bool, Failed> {
        Ok(!self.values()?.is_empty())
    }

    fn values(&self) -> Result<Vec<Value>, Failed> {
        self.0.results().map_err(|error| Failed(said(error)))
    }
}

/// A whole number below 2^53 as an argument.
pub fn number(value: u64) -> D1Type<'static> {
    D1Type::Real(value as f64)
}

/// A time as an argument.
pub fn time(at: Timestamp) -> D1Type<'static> {
    number(at.0)
}

/// A text that may be missing as an argument.
pub fn optional(text: Option<&str>) -> D1Type<'_> {
    text.map_or(D1Type::Null, D1Type::Text)
}

/// A list as one argument, for `json_each`.
pub fn list(items: impl Iterator<Item = impl AsRef<str>>) -> String {
    Value::from_iter(items.map(|item| item.as_ref().to_owned())).to_string()
}

/// A time as it comes from a column.
pub fn moment(ms: f64) -> Timestamp {
    Timestamp(ms as u64)
}
