//! The consent of users at other servers (`migrations/0024_consents.sql`), in the root database.

use super::{Sql, Statement, Value, read};
use crate::ports::{
    consents::{ConsentKey, ConsentKind, ConsentStore, Sealed},
    directory::DirectoryResult,
};
use crate::types::{ConsentGiven, TenantId, Timestamp, UserId};
use async_trait::async_trait;
use serde::Deserialize;

/// The store of consent in the root database.
pub struct SqlConsents<S>(pub S);

#[derive(Deserialize)]
struct SealedRow {
    value: String,
    version: f64,
}

#[derive(Deserialize)]
struct RequestRow {
    tenant: String,
    user: String,
    value: String,
    version: f64,
}

#[derive(Deserialize)]
struct TokenRow {
    user: String,
    name: String,
}

#[derive(Deserialize)]
struct Done {}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below 2^53")]
fn sealed(value: String, version: f64) -> Sealed {
    Sealed { value, version: version as u64 }
}

/// The condition on the row of a key, with [`key`] as the first parameters.
const OF_KEY: &str = "tenant = ?1 AND user = ?2 AND kind = ?3 AND name = ?4";

fn key(key: &ConsentKey) -> [Value<'_>; 4] {
    let user = key.user.as_deref().unwrap_or_default();
    [key.tenant.as_str().into(), user.into(), key.kind.name().into(), key.name.as_str().into()]
}

fn with<'a, const N: usize>(of: &'a ConsentKey, more: [Value<'a>; N]) -> Vec<Value<'a>> {
    key(of).into_iter().chain(more).collect()
}

#[async_trait(?Send)]
impl<S: Sql> ConsentStore for SqlConsents<S> {
    async fn get(&self, of: &ConsentKey) -> DirectoryResult<Option<Sealed>> {
        let sql = format!("SELECT value, version FROM consents WHERE {OF_KEY}");
        let rows = self.0.batch(&[Statement::new(sql, key(of))]).await?;
        Ok(read::<SealedRow>(&rows, 0)?.into_iter().next().map(|row| sealed(row.value, row.version)))
    }

    async fn put(
        &self,
        of: &ConsentKey,
        value: &str,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> DirectoryResult<()> {
        let drop_expired = "DELETE FROM consents WHERE tenant = ?1 AND kind = 'request' AND expires_at <= ?2";
        // The tenant of development has no row.
        let put = "INSERT INTO consents (tenant, user, kind, name, version, expires_at, value) \
                   SELECT ?1, ?2, ?3, ?4, 1, ?5, ?6 \
                   WHERE NOT EXISTS (SELECT 1 FROM tenants WHERE id = ?1 AND deleted_at IS NOT NULL) \
                   ON CONFLICT (tenant, user, kind, name) DO UPDATE \
                   SET version = version + 1, expires_at = excluded.expires_at, value = excluded.value";
        let expires_at = expires_at.map_or(Value::Null, Value::from);
        self.0
            .batch(&[
                Statement::new(drop_expired, [of.tenant.as_str().into(), now.into()]),
                Statement::new(put, with(of, [expires_at, value.into()])),
            ])
            .await?;
        Ok(())
    }

    async fn replace(&self, of: &ConsentKey, value: &str, version: u64) -> DirectoryResult<bool> {
        let sql = format!(
            "UPDATE consents SET value = ?6, version = version + 1 WHERE {OF_KEY} AND version = ?5 RETURNING 1 AS done"
        );
        let rows = self.0.batch(&[Statement::new(sql, with(of, [version.into(), value.into()]))]).await?;
        Ok(!read::<Done>(&rows, 0)?.is_empty())
    }

    async fn delete(&self, of: &ConsentKey, version: u64) -> DirectoryResult<()> {
        let sql = format!("DELETE FROM consents WHERE {OF_KEY} AND version = ?5");
        self.0.batch(&[Statement::new(sql, with(of, [version.into()]))]).await?;
        Ok(())
    }

    async fn request(&self, name: &str, now: Timestamp) -> DirectoryResult<Option<(ConsentKey, Sealed)>> {
        let sql = "SELECT tenant, user, value, version FROM consents \
                   WHERE kind = 'request' AND name = ?1 AND expires_at > ?2";
        let rows = self.0.batch(&[Statement::new(sql, [name.into(), now.into()])]).await?;
        let request = |RequestRow { tenant, user, value, version }| {
            let user = Some(UserId::from(user)).filter(|user| !user.is_empty());
            let key = ConsentKey {
                tenant: TenantId::from(tenant),
                user,
                kind: ConsentKind::Request,
                name: name.to_owned(),
            };
            (key, sealed(value, version))
        };
        Ok(read::<RequestRow>(&rows, 0)?.into_iter().next().map(request))
    }

    async fn redeem(
        &self,
        request: &ConsentKey,
        version: u64,
        token: &ConsentKey,
        value: &str,
    ) -> DirectoryResult<bool> {
        let put = format!(
            "INSERT INTO consents (tenant, user, kind, name, version, value) \
             SELECT ?1, ?2, ?6, ?7, 1, ?8 FROM consents WHERE {OF_KEY} AND version = ?5 \
             ON CONFLICT (tenant, user, kind, name) DO UPDATE \
             SET version = version + 1, expires_at = NULL, value = excluded.value RETURNING 1 AS done"
        );
        let delete = format!("DELETE FROM consents WHERE {OF_KEY} AND version = ?5");
        let of_token = [token.kind.name().into(), token.name.as_str().into(), value.into()];
        let of_request = with(request, [version.into()]);
        let put = Statement::new(put, of_request.iter().cloned().chain(of_token).collect::<Vec<_>>());
        let rows = self.0.batch(&[put, Statement::new(delete, of_request)]).await?;
        Ok(!read::<Done>(&rows, 0)?.is_empty())
    }

    async fn tokens(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&ConsentGiven>,
        limit: usize,
    ) -> DirectoryResult<Vec<ConsentGiven>> {
        let sql = "SELECT user, name FROM consents WHERE tenant = ?1 AND kind = 'token' \
                   AND (?2 = '' OR user = ?2) AND (user, name) > (?3, ?4) ORDER BY user, name LIMIT ?5";
        let (last, server) = after.map_or(("", ""), |after| (&*after.user, &*after.server));
        let user = user.map_or("", |user| &**user);
        let values = [tenant.as_str().into(), user.into(), last.into(), server.into(), (limit as u64).into()];
        let rows = self.0.batch(&[Statement::new(sql, values)]).await?;
        let given = |TokenRow { user, name }| ConsentGiven { user: user.into(), server: name };
        Ok(read::<TokenRow>(&rows, 0)?.into_iter().map(given).collect())
    }

    async fn erase(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<()> {
        let sql = match user {
            Some(_) => "DELETE FROM consents WHERE tenant = ?1 AND user = ?2",
            None => "DELETE FROM consents WHERE tenant = ?1",
        };
        let of = std::iter::once(tenant.as_str().into()).chain(user.map(|user| user.as_str().into()));
        self.0.batch(&[Statement::new(sql, of.collect::<Vec<_>>())]).await?;
        Ok(())
    }
}
