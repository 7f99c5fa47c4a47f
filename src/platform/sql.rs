//! What is kept in SQLite, whoever runs it: D1 does in the Worker, and SQLite itself in tests, so that the
//! statements that tests have seen are those that run.

pub mod memory;
pub mod memory_spaces;

pub use memory::SqlMemory;
pub use memory_spaces::SqlSpaces;

use crate::types::{TenantId, Timestamp};
use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use std::borrow::Cow;

/// An argument of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A whole number below 2^53.
    Number(u64),
    /// A text.
    Text(Cow<'a, str>),
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(at: Timestamp) -> Self {
        Self::Number(at.0)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

/// A statement and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// The SQL, with `?1`, `?2` and so on in it.
    pub sql: String,
    /// What stands for them.
    pub args: Vec<Value<'a>>,
}

impl<'a> Statement<'a> {
    /// A statement.
    pub fn new(sql: impl Into<String>, args: impl Into<Vec<Value<'a>>>) -> Self {
        Self { sql: sql.into(), args: args.into() }
    }
}

/// The rows that a statement returned.
pub trait Rows {
    /// The rows as values.
    ///
    /// # Errors
    /// When a row is not a `T`.
    fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, String>;
}

/// A database. Its errors are words for our log.
#[async_trait(?Send)]
pub trait Sql {
    /// What a statement returns.
    type Rows: Rows;

    /// Runs statements as one transaction in one round trip, and returns the rows of each.
    async fn batch(&self, statements: &[Statement<'_>]) -> Result<Vec<Self::Rows>, String>;
}

/// The databases of a deployment.
#[async_trait(?Send)]
pub trait Databases {
    /// One of them.
    type Database: Sql;

    /// Looks the next one up, so that it is had at once in the next moment.
    async fn locate(&self, tenant: &TenantId) -> Result<(), String>;

    /// The one with a tenant's rows.
    async fn of(&self, tenant: &TenantId) -> Result<Self::Database, String>;

    /// All of them.
    fn all(&self) -> Vec<Self::Database>;
}

/// The rows of the statement with this number in its batch.
fn read<T: DeserializeOwned>(results: &[impl Rows], number: usize) -> Result<Vec<T>, String> {
    results.get(number).ok_or("a batch came back short")?.read()
}

/// A value as an argument, for `json_each` and `->>`.
fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}
