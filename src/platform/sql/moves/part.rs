//! The rows that a move takes to another shard.

use super::position::Table;
use crate::platform::sql::{Rows, SqlError, Statement, Value, storage};
use crate::ports::moves::Move;
use crate::types::{StorageUse, TenantId, UserId};

/// The owner of a tree, from its scope. The ids of agents contain no slash, and `agents/` has seven characters.
const OWNER: &str = "substr(scope, 8 + instr(substr(scope, 8), '/'))";

/// Which rows of a tenant move.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    /// All rows.
    All,
    /// The rows that belong to no user, because the users of the tenant are spread.
    Shared,
    /// The memory and the files of a user.
    User(&'a UserId),
}

/// A stored move, and the properties of its tenant on which it depends.
pub(super) struct Job {
    /// The move.
    pub one: Move,
    /// Whether the tenant is marked as deleted.
    pub is_deleted: bool,
    /// The number of shards over which the users of the tenant are spread, if they are.
    pub spread: Option<usize>,
}

impl Job {
    /// Returns the tenant.
    pub(super) fn tenant(&self) -> &TenantId {
        &self.one.tenant
    }

    /// Returns which rows move.
    pub(super) fn part(&self) -> Part<'_> {
        match &self.one.user {
            Some(user) => Part::User(user),
            None if self.spread.is_some() => Part::Shared,
            None => Part::All,
        }
    }

    /// Returns the arguments of the conditions of this part: the tenant as `?1`, and the user as `?2`.
    pub(super) fn args(&self) -> Vec<Value<'_>> {
        let user = self.part().user().map(UserId::as_str);
        std::iter::once(self.tenant().as_str()).chain(user).map(Value::from).collect()
    }

    /// Returns the statement that counts the rows that move; see [`read_use`].
    pub(super) fn select_use(&self) -> Statement<'_> {
        let part = self.part();
        let sum = |table: &str, condition: Option<String>, columns: [&str; 2]| {
            let [rows, bytes] = columns.map(|column| match &condition {
                Some(condition) => {
                    format!("(SELECT coalesce(sum({column}), 0) FROM {table} WHERE {condition})")
                }
                None => "0".to_owned(),
            });
            (rows, bytes)
        };
        let (files, file_bytes) = sum("file_trees", Some(part.trees()), ["files", "bytes"]);
        let (rows, bytes) = sum("memory_collections", part.memory(), ["documents", "bytes"]);
        let sessions = part.rows(Table::Sessions).map_or_else(
            || "0".to_owned(),
            |condition| format!("(SELECT count(*) FROM sessions WHERE {condition} AND parent IS NULL)"),
        );
        let sql = format!(
            "SELECT {files} AS files, {file_bytes} AS file_bytes, {rows} AS memory_rows, {bytes} AS memory_bytes, \
             {sessions} AS sessions"
        );
        Statement::new(sql, self.args())
    }
}

/// Reads the result of [`Job::select_use`].
pub(super) fn read_use(results: &[impl Rows]) -> Result<Option<StorageUse>, SqlError> {
    results.first().map(storage::read_use).transpose()
}

impl<'a> Part<'a> {
    /// Returns the name in the fence.
    pub(super) fn name(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Shared => "shared".to_owned(),
            Self::User(user) => format!("users/{user}"),
        }
    }

    /// Returns the user that moves.
    pub(super) fn user(self) -> Option<&'a UserId> {
        match self {
            Self::User(user) => Some(user),
            Self::All | Self::Shared => None,
        }
    }

    /// Returns the condition on the rows of a table; `None` if none of them move.
    pub(super) fn rows(self, table: Table) -> Option<String> {
        match (table, self) {
            (_, Self::All) | (Table::Sessions, Self::Shared) => Some("tenant = ?1".to_owned()),
            (Table::Sessions, Self::User(_)) => None,
            // Through an index of the trees, which are few.
            (Table::Files, _) => Some(format!(
                "tenant = ?1 AND scope IN (SELECT scope FROM file_trees WHERE {})",
                self.trees()
            )),
            (Table::FreeBlobs, _) => Some(format!("tenant = ?1{}", self.owned(OWNER))),
        }
    }

    /// Returns the condition on the rows of memory, which have a user; `None` if none of them move.
    pub(super) fn memory(self) -> Option<String> {
        match self {
            Self::All => Some("tenant = ?1".to_owned()),
            Self::Shared => None,
            Self::User(_) => Some("tenant = ?1 AND user = ?2".to_owned()),
        }
    }

    /// Returns the condition on the trees of files.
    fn trees(self) -> String {
        format!("tenant = ?1{}", self.owned("owner"))
    }

    fn owned(self, owner: &str) -> String {
        match self {
            Self::All => String::new(),
            Self::Shared => format!(" AND {owner} NOT GLOB 'users/*'"),
            Self::User(_) => format!(" AND {owner} = 'users/' || ?2"),
        }
    }
}
