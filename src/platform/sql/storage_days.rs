//! What each tenant stored at the start of each day (`migrations/0021_storage_days.sql`). A run copies the numbers of a
//! page of tenants from their shard to the root database. A repeated page keeps its rows.

use super::{Rows, Sql, SqlError, Statement, Value, json, read, storage::UseRow};
use crate::types::{Day, StorageUse, TenantId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Number of tenants of a page.
pub const PAGE: usize = 500;
/// Number of days for which the rows are kept, as those of usage are.
const KEPT_DAYS: u64 = 400;

/// The columns of `storage_days` that are numbers.
const NUMBERS: &str = "files, file_bytes, memory_rows, memory_bytes, sessions";

#[derive(Deserialize)]
struct TenantRow {
    tenant: TenantId,
    #[serde(flatten)]
    used: UseRow,
}

#[derive(Serialize)]
struct Stored {
    tenant: TenantId,
    #[serde(flatten)]
    used: StorageUse,
}

/// How far the rows of a day are complete: the last recorded tenant of each shard, or `None` if the shard is complete. A
/// shard without rows of the day is missing.
#[derive(Default)]
pub struct Progress(HashMap<String, Option<TenantId>>);

impl Progress {
    /// Reads how far the rows of a day are complete.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn read(root: &impl Sql, day: Day) -> Result<Self, SqlError> {
        #[derive(Deserialize)]
        struct Row {
            shard: String,
            after: Option<TenantId>,
        }
        let sql = "SELECT shard, after FROM storage_progress WHERE day = ?1";
        let rows = root.batch(&[Statement::new(sql, vec![day.to_string().into()])]).await?;
        Ok(Self(read::<Row>(&rows, 0)?.into_iter().map(|row| (row.shard, row.after)).collect()))
    }

    /// Returns the tenant after which rows of the shard are missing; `None` if none is missing.
    pub fn after(&self, shard: &str) -> Option<&str> {
        match self.0.get(shard) {
            Some(after) => after.as_ref().map(TenantId::as_str),
            None => Some(""),
        }
    }
}

/// Records the next page of tenants of a shard, those after the tenant `after`.
///
/// # Errors
/// If a database fails.
pub async fn record(
    root: &impl Sql,
    (name, shard): (&str, &impl Sql),
    day: Day,
    after: &str,
) -> Result<(), SqlError> {
    let page = format!(
        "SELECT tenant, {NUMBERS} FROM tenant_storage WHERE tenant > ?1 ORDER BY tenant LIMIT {PAGE}"
    );
    let rows = shard.batch(&[Statement::new(page, vec![after.into()])]).await?;
    let rows = read::<TenantRow>(&rows, 0)?.into_iter();
    let rows: Vec<_> = rows.map(|row| Stored { tenant: row.tenant, used: row.used.into() }).collect();
    let last = rows.last().filter(|_| rows.len() == PAGE).map(|row| row.tenant.as_str());
    let (rows, day, expired) = (json(&rows)?, day.to_string(), day.earlier(KEPT_DAYS).to_string());
    let tenant = "value ->> 'tenant'";
    let values: Vec<_> = NUMBERS.split(", ").map(|column| format!("value ->> '{column}'")).collect();
    let insert = format!(
        "INSERT OR IGNORE INTO storage_days (tenant, day, shard, {NUMBERS}) \
         SELECT {tenant}, ?2, ?3, {} FROM json_each(?1) \
         WHERE NOT EXISTS (SELECT 1 FROM tenants WHERE id = {tenant} AND deleted_at IS NOT NULL)",
        values.join(", "),
    );
    let delete = format!(
        "DELETE FROM storage_days WHERE tenant IN (SELECT {tenant} FROM json_each(?1)) AND day <= ?2"
    );
    let progress = "INSERT INTO storage_progress (shard, day, after) VALUES (?1, ?2, ?3) \
                    ON CONFLICT (shard) DO UPDATE SET day = excluded.day, after = excluded.after \
                    WHERE excluded.day >= storage_progress.day";
    let last = last.map_or(Value::Null, Value::from);
    root.batch(&[
        Statement::new(insert, vec![rows.as_str().into(), day.as_str().into(), name.into()]),
        Statement::new(delete, vec![rows.as_str().into(), expired.into()]),
        Statement::new(progress, vec![name.into(), day.as_str().into(), last]),
    ])
    .await?;
    Ok(())
}

/// Returns the statement that reads what a tenant stored on each day of a range; see [`read_days`].
pub fn select_days(tenant: &TenantId, from: Day, to: Day) -> Statement<'_> {
    let sums: Vec<_> = NUMBERS.split(", ").map(|column| format!("sum({column}) AS {column}")).collect();
    let sql = format!(
        "SELECT day, {} FROM storage_days WHERE tenant = ?1 AND day BETWEEN ?2 AND ?3 GROUP BY day ORDER BY day",
        sums.join(", "),
    );
    Statement::new(sql, vec![tenant.as_str().into(), from.to_string().into(), to.to_string().into()])
}

/// Reads the result of [`select_days`].
///
/// # Errors
/// If a row has another form.
pub fn read_days(rows: &impl Rows) -> Result<Vec<(Day, StorageUse)>, SqlError> {
    #[derive(Deserialize)]
    struct DayRow {
        day: Day,
        #[serde(flatten)]
        used: UseRow,
    }
    Ok(rows.read::<DayRow>()?.into_iter().map(|row| (row.day, row.used.into())).collect())
}
