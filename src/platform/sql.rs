//! Storage in SQLite. In the Worker the statements run on D1, in tests on SQLite itself, so that tests
//! exercise the statements that run in production.

pub mod agents;
pub mod audit;
pub mod consents;
pub mod glance;
mod log;
pub mod memory;
pub mod memory_spaces;
pub mod moves;
pub mod secrets;
pub mod session_store;
pub mod storage;
pub mod storage_days;
pub mod tenants;

pub use agents::SqlAgents;
pub use consents::SqlConsents;
pub use memory::SqlMemory;
pub use memory_spaces::SqlSpaces;
pub use moves::SqlMoves;
pub use secrets::SqlSecrets;
pub use session_store::SqlSessionStore;

use crate::ports::{StoreError, directory::DirectoryError};
use crate::types::{TenantId, Timestamp, UserId};
use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use std::borrow::Cow;

/// Why a statement or its result failed, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SqlError(pub String);

impl SqlError {
    /// Wraps an error of a driver. If a table or a column is missing, the error also says what to do.
    pub fn new(error: impl ToString) -> Self {
        let cause = error.to_string();
        let is_outdated = ["no such table", "no such column", "has no column named"];
        match is_outdated.iter().any(|sign| cause.contains(sign)) {
            true => Self(format!("{cause}; apply the migrations, as `make dev` and `make deploy` do")),
            false => Self(cause),
        }
    }
}

impl From<SqlError> for DirectoryError {
    fn from(SqlError(why): SqlError) -> Self {
        Self(why)
    }
}

/// A bound parameter of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer below 2^53.
    Number(u64),
    /// A text.
    Text(Cow<'a, str>),
    /// No value.
    Null,
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

/// The SQLite of an object.
///
/// ```
/// # use edge_harness::{platform::sql::{ObjectSql, Row}, ports::StoreError};
/// fn tables(sql: &impl ObjectSql) -> Result<Vec<String>, StoreError> {
///     let rows = sql.query("SELECT name FROM sqlite_master WHERE type = ?", &["table".into()])?;
///     Ok(rows.iter().filter_map(|row| row.text(0)).collect())
/// }
/// ```
pub trait ObjectSql {
    /// A row of a result.
    type Row: Row;

    /// Runs a statement with parameters `?` or `?1` and returns its rows.
    ///
    /// # Errors
    /// The database failed.
    fn query(&self, sql: &str, args: &[Value<'_>]) -> Result<Vec<Self::Row>, StoreError>;

    /// Runs a statement that returns no rows.
    ///
    /// # Errors
    /// The database failed.
    fn execute(&self, sql: &str, args: &[Value<'_>]) -> Result<(), StoreError>;

    /// Runs work as a transaction. If the work fails, nothing of it is stored.
    ///
    /// # Errors
    /// The work or the database failed.
    fn transaction(&self, work: &mut dyn FnMut() -> Result<(), StoreError>) -> Result<(), StoreError>;
}

/// A row of a result.
///
/// ```
/// # use edge_harness::platform::sql::Row;
/// /// Reads a row with the columns `seq` and `json`.
/// fn record(row: &impl Row) -> Option<(u64, String)> {
///     Some((row.number(0), row.text(1)?))
/// }
/// ```
pub trait Row {
    /// Returns the integer in a column; 0 if there is none.
    fn number(&self, column: u32) -> u64;

    /// Returns the text in a column; `None` if there is none.
    fn text(&self, column: u32) -> Option<String>;
}

/// A statement and its bound parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// The SQL, with parameters `?1`, `?2` and so on.
    pub sql: String,
    /// The values of the parameters.
    pub args: Vec<Value<'a>>,
}

impl<'a> Statement<'a> {
    /// Creates a statement.
    pub fn new(sql: impl Into<String>, args: impl Into<Vec<Value<'a>>>) -> Self {
        Self { sql: sql.into(), args: args.into() }
    }
}

/// Maximum number of parameters of a statement of an object.
const MAX_PARAMETERS: usize = 100;

/// Returns the statements that insert rows. `insert` is their start, up to the names of the columns; `values` has the
/// values of all rows, one row after the other.
fn insert_rows<'a>(insert: &str, columns: usize, mut values: Vec<Value<'a>>) -> Vec<Statement<'a>> {
    let row = format!("({})", vec!["?"; columns].join(", "));
    let mut statements = Vec::new();
    while !values.is_empty() {
        let rows = (values.len() / columns).min(MAX_PARAMETERS / columns);
        let rest = values.split_off(rows * columns);
        let sql = format!("{insert} VALUES {}", vec![row.as_str(); rows].join(", "));
        statements.push(Statement::new(sql, std::mem::replace(&mut values, rest)));
    }
    statements
}

/// The rows that a statement returned.
///
/// ```
/// # use edge_harness::platform::sql::{Rows, SqlError};
/// #[derive(serde::Deserialize)]
/// struct Name {
///     name: String,
/// }
///
/// fn names(rows: &impl Rows) -> Result<Vec<String>, SqlError> {
///     Ok(rows.read::<Name>()?.into_iter().map(|row| row.name).collect())
/// }
/// ```
pub trait Rows {
    /// Deserializes the rows.
    ///
    /// # Errors
    /// If a row is not a `T`.
    fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, SqlError>;
}

/// A database.
///
/// ```
/// # use edge_harness::platform::sql::{Sql, SqlError, Statement};
/// async fn remove(sql: &impl Sql, tenant: &str) -> Result<(), SqlError> {
///     let statement = Statement::new("DELETE FROM files WHERE tenant = ?1", [tenant.into()]);
///     sql.batch(&[statement]).await.map(drop)
/// }
/// ```
#[async_trait(?Send)]
pub trait Sql {
    /// The rows that a statement returns.
    type Rows: Rows;

    /// Runs statements in one transaction and one round trip, and returns the rows of each.
    async fn batch(&self, statements: &[Statement<'_>]) -> Result<Vec<Self::Rows>, SqlError>;
}

/// Returns the name of a shard, which is that of its binding: `DB` is the root, then follow `DB_1`, `DB_2` and so on.
pub fn shard_name(number: usize) -> String {
    if number == 0 { "DB".to_owned() } else { format!("DB_{number}") }
}

/// The databases of a deployment.
///
/// ```
/// # use edge_harness::platform::sql::{Databases, Sql, SqlError, Statement};
/// # use edge_harness::types::TenantId;
/// async fn remove(databases: &impl Databases, tenant: &TenantId) -> Result<(), SqlError> {
///     for database in databases.all_of(tenant).await? {
///         let statement = Statement::new("DELETE FROM files WHERE tenant = ?1", [tenant.as_str().into()]);
///         database.batch(&[statement]).await?;
///     }
///     Ok(())
/// }
/// ```
#[async_trait(?Send)]
pub trait Databases {
    /// The type of a database.
    type Database: Sql;

    /// Looks up the tenant's database, so that the next [`Databases::of`] returns without waiting.
    async fn locate(&self, tenant: &TenantId) -> Result<(), SqlError>;

    /// Returns the database that holds the rows of a tenant's user.
    async fn of(&self, tenant: &TenantId, user: &UserId) -> Result<Self::Database, SqlError>;

    /// Returns the databases that hold any rows of a tenant.
    async fn all_of(&self, tenant: &TenantId) -> Result<Vec<Self::Database>, SqlError>;

    /// Returns all databases.
    fn all(&self) -> Vec<Self::Database>;

    /// Returns the database of a shard, if it is bound. `DB` is the root.
    fn named(&self, shard: &str) -> Option<Self::Database>;
}

/// Fails in a database that lacks the newest migration. It reads no rows.
pub const PROBE: &str = "SELECT version FROM consents LIMIT 0";

/// Returns the rows of the statement at index `number` of its batch.
fn read<T: DeserializeOwned>(results: &[impl Rows], number: usize) -> Result<Vec<T>, SqlError> {
    results
        .get(number)
        .ok_or_else(|| SqlError::new("the database returned fewer results than statements"))?
        .read()
}

/// Serializes a parameter for `json_each` and `->>`.
fn json(value: &impl Serialize) -> Result<String, SqlError> {
    serde_json::to_string(value).map_err(SqlError::new)
}
