//! SQLite configured like D1: the real migrations, floating-point numbers, and batches as transactions. And the
//! SQLite of an object.

use async_trait::async_trait;
use edge_harness::platform::sql::{Databases, ObjectSql, Row, Rows, Sql, SqlError, Statement, Value};
use edge_harness::ports::StoreError;
use edge_harness::types::{TenantId, UserId};
use rusqlite::{
    Connection, StatementStatus,
    backup::Backup,
    limits::Limit,
    types::{Null, ValueRef},
};
use serde::de::DeserializeOwned;
use std::{
    cell::{Cell, RefCell},
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

/// An in-memory database. Clones share it.
#[derive(Clone)]
pub struct Sqlite {
    connection: Rc<RefCell<Connection>>,
    statements: Rc<Cell<usize>>,
}

pub struct JsonRows(Vec<serde_json::Value>);

impl Rows for JsonRows {
    fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, SqlError> {
        self.0.iter().map(|row| T::deserialize(row).map_err(SqlError::new)).collect()
    }
}

impl Sqlite {
    pub fn new() -> Self {
        Self::upgraded(usize::MAX, "")
    }

    /// Creates a database with the first migrations and these rows, then applies the remaining migrations.
    pub fn upgraded(first: usize, rows: &str) -> Self {
        let connection = Connection::open_in_memory().unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let (before, after) = files.split_at(first.min(files.len()));
        let read = |files: &[PathBuf]| files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        let (before, after): (Vec<String>, Vec<String>) = (read(before), read(after));
        for sql in before.iter().map(String::as_str).chain([rows]).chain(after.iter().map(String::as_str)) {
            connection.execute_batch(sql).unwrap();
        }
        Self::limited(connection)
    }

    /// Returns a separate database with the same rows.
    pub fn copy(&self) -> Self {
        let mut connection = Connection::open_in_memory().unwrap();
        let source = self.connection.borrow();
        Backup::new(&source, &mut connection)
            .unwrap()
            .run_to_completion(10_000, Duration::ZERO, None)
            .unwrap();
        Self::limited(connection)
    }

    /// Applies the limits of D1.
    fn limited(connection: Connection) -> Self {
        for (limit, value) in [
            (Limit::SQLITE_LIMIT_LENGTH, 2_000_000),
            (Limit::SQLITE_LIMIT_SQL_LENGTH, 100_000),
            (Limit::SQLITE_LIMIT_COLUMN, 100),
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 5),
            (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
            (Limit::SQLITE_LIMIT_FUNCTION_ARG, 32),
            (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 100),
        ] {
            connection.set_limit(limit, value).unwrap();
        }
        Self { connection: Rc::new(RefCell::new(connection)), statements: Rc::default() }
    }

    /// Returns how many statements have run.
    pub fn statements(&self) -> usize {
        self.statements.get()
    }

    /// Runs statements unchanged.
    pub fn run_all(&self, sql: &str) {
        self.connection.borrow().execute_batch(sql).unwrap();
    }

    /// Returns every row of a query, with columns joined by `|`.
    pub fn dump(&self, sql: &str) -> Vec<String> {
        let connection = self.connection.borrow();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        let mut dumped = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let cells = (0..columns).map(|n| json(row.get_ref(n).unwrap()).to_string());
            dumped.push(cells.collect::<Vec<_>>().join("|").replace('"', ""));
        }
        dumped
    }

    /// Fails if a statement scans a whole table, deletes by more than keys, or sorts a group that is stored
    /// in order.
    fn check_plan(connection: &Connection, statement: &Statement<'_>) {
        let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", statement.sql)).unwrap();
        let mut rows = explained.raw_query();
        while let Some(row) = rows.next().unwrap() {
            let step: String = row.get("detail").unwrap();
            let bounded = ["memory_serial", "memory_spaces USING INDEX memory_spaces_due"];
            let whole = step.strip_prefix("SCAN memory_").is_some_and(|scanned| {
                !scanned.contains("VIRTUAL TABLE INDEX") || scanned.ends_with("VIRTUAL TABLE INDEX 0:")
            });
            let fine = bounded.iter().any(|table| step == format!("SCAN {table}"));
            let top: i64 = row.get("parent").unwrap();
            let keyless = statement.sql.starts_with("DELETE FROM memory_entries")
                && (top, step.starts_with("SEARCH")) == (0, true)
                && !step.ends_with("(collection=? AND key=?)");
            let sorts = statement.sql.contains("ORDER BY position") && step.contains("TEMP B-TREE");
            assert!((!whole || fine) && !keyless && !sorts, "{step} in {}", statement.sql);
        }
    }

    fn run(connection: &Connection, statement: &Statement<'_>) -> rusqlite::Result<JsonRows> {
        let mut prepared = connection.prepare(&statement.sql)?;
        Self::check_plan(connection, statement);
        let names: Vec<String> = prepared.column_names().into_iter().map(str::to_owned).collect();
        for (number, value) in statement.args.iter().enumerate() {
            bind(&mut prepared, number + 1, value)?;
        }
        let mut rows = prepared.raw_query();
        let mut read = Vec::new();
        while let Some(row) = rows.next()? {
            let cell = |(n, name): (usize, &String)| Ok((name.clone(), json(row.get_ref(n)?)));
            let cells = names.iter().enumerate().map(cell);
            read.push(serde_json::Value::Object(cells.collect::<rusqlite::Result<_>>()?));
        }
        Ok(JsonRows(read))
    }
}

fn json(value: ValueRef<'_>) -> serde_json::Value {
    match value {
        ValueRef::Null => serde_json::Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => std::str::from_utf8(text).unwrap().into(),
        ValueRef::Blob(_) => "a blob".into(),
    }
}

#[async_trait(?Send)]
impl Sql for Sqlite {
    type Rows = JsonRows;

    async fn batch(&self, statements: &[Statement<'_>]) -> Result<Vec<JsonRows>, SqlError> {
        self.statements.set(self.statements.get() + statements.len());
        let mut connection = self.connection.borrow_mut();
        let transaction = connection.transaction().map_err(SqlError::new)?;
        let results = statements.iter().map(|statement| {
            Self::run(&transaction, statement).map_err(|e| SqlError::new(format!("{e} in {}", statement.sql)))
        });
        let results = results.collect::<Result<_, _>>()?;
        transaction.commit().map_err(SqlError::new)?;
        Ok(results)
    }
}

/// One shard per given first letter of a tenant's id.
#[derive(Clone)]
pub struct Shards(pub Vec<(char, Sqlite)>);

#[async_trait(?Send)]
impl Databases for Shards {
    type Database = Sqlite;

    async fn locate(&self, tenant: &TenantId) -> Result<(), SqlError> {
        self.all_of(tenant).await.map(drop)
    }

    async fn of(&self, tenant: &TenantId, _user: &UserId) -> Result<Sqlite, SqlError> {
        Ok(self.all_of(tenant).await?.remove(0))
    }

    async fn all_of(&self, tenant: &TenantId) -> Result<Vec<Sqlite>, SqlError> {
        let found = self.0.iter().find(|(letter, _)| tenant.starts_with(*letter));
        found.map(|(_, database)| vec![database.clone()]).ok_or_else(|| SqlError::new("no such shard"))
    }

    fn all(&self) -> Vec<Sqlite> {
        self.0.iter().map(|(_, database)| database.clone()).collect()
    }

    fn named(&self, shard: &str) -> Option<Sqlite> {
        self.0.iter().find(|(letter, _)| shard == letter.to_string()).map(|(_, database)| database.clone())
    }
}

/// The SQLite of an object, with its limit of parameters.
pub struct ObjectSqlite {
    connection: Connection,
    fails: Cell<bool>,
    /// Bytes of text returned.
    bytes_read: Cell<usize>,
    /// Bytes of text bound as parameters.
    bytes_bound: Cell<usize>,
    /// The steps of the plan of each query.
    plans: RefCell<Vec<String>>,
}

/// A row of an object's SQLite.
pub struct ObjectRow(Vec<rusqlite::types::Value>);

impl ObjectSqlite {
    pub fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection.set_limit(Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 100).unwrap();
        Self {
            connection,
            fails: Cell::default(),
            bytes_read: Cell::default(),
            bytes_bound: Cell::default(),
            plans: RefCell::default(),
        }
    }

    /// Makes transactions fail at their end.
    pub fn fail_transactions(&self, fails: bool) {
        self.fails.set(fails);
    }

    /// Runs a statement without parameters.
    pub fn run(&self, sql: &str) {
        self.connection.execute_batch(sql).unwrap();
    }

    /// Returns how many rows statements have inserted, replaced, updated or deleted.
    pub fn rows_written(&self) -> usize {
        self.connection.total_changes().try_into().unwrap()
    }

    /// Returns how many bytes of text statements have got as parameters.
    pub fn bytes_bound(&self) -> usize {
        self.bytes_bound.get()
    }

    /// Returns how many bytes of text were read since the last call.
    pub fn take_bytes(&self) -> usize {
        self.bytes_read.take()
    }

    /// Returns the steps of the plans of the queries since the last call.
    pub fn take_plans(&self) -> Vec<String> {
        self.plans.take()
    }

    fn explain(&self, sql: &str) -> rusqlite::Result<()> {
        let mut explained = self.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
        let mut rows = explained.raw_query();
        while let Some(row) = rows.next()? {
            self.plans.borrow_mut().push(row.get("detail")?);
        }
        Ok(())
    }
}

impl ObjectSql for ObjectSqlite {
    type Row = ObjectRow;

    fn query(&self, sql: &str, args: &[Value<'_>]) -> Result<Vec<ObjectRow>, StoreError> {
        let failed = |error: rusqlite::Error| StoreError(format!("{error} in {sql}"));
        let mut prepared = self.connection.prepare(sql).map_err(failed)?;
        if sql.starts_with("SELECT") {
            self.explain(sql).map_err(failed)?;
        }
        let text = |value: &Value<'_>| if let Value::Text(text) = value { text.len() } else { 0 };
        self.bytes_bound.set(self.bytes_bound.get() + args.iter().map(text).sum::<usize>());
        for (number, value) in args.iter().enumerate() {
            bind(&mut prepared, number + 1, value).map_err(failed)?;
        }
        let columns = prepared.column_count();
        let mut rows = prepared.raw_query();
        let mut read = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let row: Vec<rusqlite::types::Value> = (0..columns).map(|n| row.get(n).unwrap()).collect();
            let text = |value: &_| match value {
                rusqlite::types::Value::Text(text) => text.len(),
                _ => 0,
            };
            self.bytes_read.set(self.bytes_read.get() + row.iter().map(text).sum::<usize>());
            read.push(ObjectRow(row));
        }
        drop(rows);
        let again = prepared.get_status(StatementStatus::RePrepare);
        assert_eq!(again, 0, "SQLite plans this statement anew for each set of parameters: {sql}");
        Ok(read)
    }

    fn execute(&self, sql: &str, args: &[Value<'_>]) -> Result<(), StoreError> {
        // A statement of its own is a transaction.
        match self.fails.get() && self.connection.is_autocommit() {
            true => Err(StoreError("switched to fail".into())),
            false => self.query(sql, args).map(drop),
        }
    }

    fn transaction(&self, work: &mut dyn FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.run("BEGIN");
        let done = work().and_then(|()| match self.fails.get() {
            true => Err(StoreError("switched to fail".into())),
            false => Ok(()),
        });
        self.run(if done.is_ok() { "COMMIT" } else { "ROLLBACK" });
        done
    }
}

impl Row for ObjectRow {
    fn number(&self, column: u32) -> u64 {
        match self.0[column as usize] {
            rusqlite::types::Value::Integer(value) => value.try_into().unwrap(),
            _ => 0,
        }
    }

    fn text(&self, column: u32) -> Option<String> {
        match &self.0[column as usize] {
            rusqlite::types::Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

fn bind(statement: &mut rusqlite::Statement<'_>, number: usize, value: &Value<'_>) -> rusqlite::Result<()> {
    match value {
        Value::Number(value) => statement.raw_bind_parameter(number, *value as f64),
        Value::Text(text) => statement.raw_bind_parameter(number, text.as_ref()),
        Value::Null => statement.raw_bind_parameter(number, Null),
    }
}
