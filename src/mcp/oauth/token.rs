//! The tokens of users.

use super::client::{self, Grant};
use super::vault::{self, key};
use super::{Answer, Ports, Subject, text};
use crate::mcp::error::McpError;
use crate::ports::consents::{ConsentKey, ConsentKind};
use crate::types::Timestamp;
use futures::{FutureExt, channel::oneshot};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{rc::Rc, time::Duration};

/// How long before its end a token is refreshed.
const MARGIN: Duration = Duration::from_secs(30);
/// How long a refresh is awaited that another call has begun. If that call is lost, the next one begins again.
const LEASE: Duration = Duration::from_secs(15);
/// How often a call looks for the end of such a refresh.
const POLL: Duration = Duration::from_millis(500);
/// Maximum number of looks.
const MAX_POLLS: u32 = 40;

/// A token, and what is needed to refresh it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Token {
    pub access: String,
    pub refresh: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub grant: Grant,
    /// Until when a call refreshes it.
    pub refreshing_until: Option<Timestamp>,
}

impl Token {
    fn is_refreshed_by_another(&self, now: Timestamp) -> bool {
        self.refreshing_until.is_some_and(|until| until > now)
    }
}

/// The tokens of a user for a server.
#[derive(Clone)]
pub(in crate::mcp) struct Tokens {
    ports: Rc<Ports>,
    key: ConsentKey,
}

impl Tokens {
    pub fn new(ports: &Rc<Ports>, subject: &Subject) -> Self {
        let key = key(&subject.tenant, Some(&subject.user), ConsentKind::Token, &subject.resource);
        Self { ports: Rc::clone(ports), key }
    }

    /// Returns the stored token.
    pub(super) async fn stored(&self) -> Result<Option<Token>, McpError> {
        Ok(self.read().await?.map(|(token, _)| token))
    }

    /// Returns a valid token, refreshed if need be; `None` if the user has to give consent.
    pub async fn access(&self) -> Result<Option<String>, McpError> {
        for _ in 0..MAX_POLLS {
            let Some((token, version)) = self.read().await? else { return Ok(None) };
            let now = self.ports.clock.now();
            if token.expires_at.is_none_or(|end| end > now + MARGIN) {
                return Ok(Some(token.access));
            }
            let Some(refresh) = token.refresh.clone() else { return Ok(None) };
            // A refresh token may be valid once, so only one call uses it.
            if token.is_refreshed_by_another(now) {
                self.ports.clock.sleep(POLL).await;
                continue;
            }
            let claimed = Token { refreshing_until: Some(now + LEASE), ..token.clone() };
            if vault::replace(&self.ports, &self.key, &claimed, version).await? {
                return self.start_refresh(token, refresh, version + 1).await;
            }
        }
        Err(McpError::Consent("its token is being refreshed; try again".into()))
    }

    /// Refreshes a token in a task of its own: a call that ends early must not lose the new refresh token.
    async fn start_refresh(
        &self,
        token: Token,
        refresh: String,
        version: u64,
    ) -> Result<Option<String>, McpError> {
        let (sender, refreshed) = oneshot::channel();
        let own = self.clone();
        let work = async move {
            // Without a receiver, the stored token is all that is needed.
            let _ = sender.send(own.refresh(token, &refresh, version).await);
        };
        (self.ports.spawn)(work.boxed_local());
        refreshed.await.unwrap_or(Err(McpError::Unreachable))
    }

    async fn refresh(&self, token: Token, refresh: &str, version: u64) -> Result<Option<String>, McpError> {
        let grant = &token.grant;
        let params =
            [("grant_type", "refresh_token"), ("refresh_token", refresh), ("resource", &grant.resource)];
        let answer = client::ask(&self.ports, &self.key.tenant, grant, &params).await;
        let refreshed = answer.and_then(|answer| match answer.body.get("error").and_then(Value::as_str) {
            // Others, such as those of a proxy, say nothing about the token.
            Some("invalid_grant" | "invalid_client" | "unauthorized_client") => Ok(None),
            _ => issued(&answer, grant, Some(refresh), self.ports.clock.now()).map(Some),
        });
        match refreshed {
            Ok(Some(new)) => {
                self.put_refreshed(&new, refresh, version).await?;
                Ok(Some(new.access))
            }
            Ok(None) => {
                self.ports.consents.delete(&self.key, version).await?;
                Ok(None)
            }
            Err(error) => {
                vault::replace(&self.ports, &self.key, &token, version).await?;
                Err(error)
            }
        }
    }

    /// Stores a refreshed token. If the row has changed but still has the refresh token that was used, which is not valid any
    /// more, the new one takes its place.
    async fn put_refreshed(&self, new: &Token, used: &str, mut version: u64) -> Result<(), McpError> {
        while !vault::replace(&self.ports, &self.key, new, version).await? {
            match self.read().await? {
                Some((token, current)) if token.refresh.as_deref() == Some(used) => version = current,
                // The user has connected again, or was erased.
                _ => break,
            }
        }
        Ok(())
    }

    /// Treats a token that the server has refused as expired, unless it is being refreshed already.
    pub async fn refuse(&self, access: &str) -> Result<(), McpError> {
        let now = self.ports.clock.now();
        let is_valid = |token: &Token| {
            token.access == access
                && token.expires_at.is_none_or(|end| end > now)
                && !token.is_refreshed_by_another(now)
        };
        if let Some((token, version)) = self.read().await?.filter(|(token, _)| is_valid(token)) {
            let expired = Token { expires_at: Some(now), ..token };
            vault::replace(&self.ports, &self.key, &expired, version).await?;
        }
        Ok(())
    }

    async fn read(&self) -> Result<Option<(Token, u64)>, McpError> {
        vault::get(&self.ports, &self.key).await
    }
}

/// Reads the response of a token endpoint. A response without a refresh token leaves `refresh` valid.
pub(super) fn issued(
    answer: &Answer,
    grant: &Grant,
    refresh: Option<&str>,
    now: Timestamp,
) -> Result<Token, McpError> {
    if matches!(answer.status, 408 | 429 | 500..) {
        return Err(McpError::Issuer(answer.status));
    }
    let is_bearer = text(&answer.body, "token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    match text(&answer.body, "access_token") {
        Some(access) if answer.status == 200 && is_bearer => {
            let seconds = answer.body.get("expires_in").and_then(Value::as_u64);
            Ok(Token {
                access,
                refresh: text(&answer.body, "refresh_token").or_else(|| refresh.map(str::to_owned)),
                expires_at: seconds
                    .map(|seconds| now + Duration::from_secs(seconds.min(u64::from(u32::MAX)))),
                grant: Grant {
                    scope: text(&answer.body, "scope").or_else(|| grant.scope.clone()),
                    ..grant.clone()
                },
                refreshing_until: None,
            })
        }
        _ => {
            // Only the code: a description could repeat what was sent.
            let code = text(&answer.body, "error").filter(|code| {
                code.len() <= 40 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            });
            let code = code.map(|code| format!(" and the error {code}")).unwrap_or_default();
            Err(McpError::Consent(format!(
                "its authorization server answered with status {}{code}",
                answer.status
            )))
        }
    }
}
