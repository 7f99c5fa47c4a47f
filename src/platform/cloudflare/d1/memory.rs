//! D1 as the database of the memory index.

use super::{Database, Rows, Shards};
use crate::platform::sql::{self, Databases, Sql, SqlError, Value};
use crate::types::{TenantId, UserId};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use std::rc::Rc;
use worker::D1Type;

#[async_trait(?Send)]
impl Sql for Database {
    type Rows = Rows;

    async fn batch(&self, statements: &[sql::Statement<'_>]) -> Result<Vec<Rows>, SqlError> {
        let args: Vec<Vec<_>> = statements.iter().map(|s| s.args.iter().map(argument).collect()).collect();
        let batch: Vec<_> =
            statements.iter().map(|s| s.sql.as_str()).zip(args.iter().map(Vec::as_slice)).collect();
        Database::batch(self, &batch).await
    }
}

impl sql::Rows for Rows {
    fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, SqlError> {
        Rows::read(self)
    }
}

impl Database {
    /// Runs a statement and returns its rows.
    pub async fn query(&self, statement: &sql::Statement<'_>) -> Result<Rows, SqlError> {
        let args: Vec<_> = statement.args.iter().map(argument).collect();
        self.ask(&statement.sql, &args).await
    }
}

fn argument<'a>(value: &'a Value<'_>) -> D1Type<'a> {
    match value {
        Value::Number(number) => super::number(*number),
        Value::Text(text) => D1Type::Text(text),
        Value::Null => D1Type::Null,
    }
}

#[async_trait(?Send)]
impl Databases for Rc<Shards> {
    type Database = Database;

    async fn locate(&self, tenant: &TenantId) -> Result<(), SqlError> {
        Shards::locate(self, tenant).await
    }

    async fn of(&self, tenant: &TenantId, user: &UserId) -> Result<Database, SqlError> {
        Shards::of_user(self, tenant, user).await
    }

    async fn all_of(&self, tenant: &TenantId) -> Result<Vec<Database>, SqlError> {
        Shards::all_of(self, tenant).await
    }

    fn all(&self) -> Vec<Database> {
        Shards::all(self).to_vec()
    }

    fn named(&self, shard: &str) -> Option<Database> {
        Shards::named(self, shard).cloned()
    }
}
