//! Moves of tenants and users between shards, for the operator.

use super::gateway::{Gateway, GatewayCall};
use super::response::{self, Response};
use super::tenants::{existing_tenant, shard_of};
use super::{audit, body, page, placement};
use crate::ports::directory::Tenant;
use crate::ports::moves::{Move, MovePhase};
use crate::types::{AuditAction, ErrorCode, Problem, TenantId, UserId};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Maximum number of users of a tenant that have a shard of their own. Each isolate caches all of them.
const MAX_MOVED_USERS: usize = 100;

#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct NewMove {
    /// The shard to move to. The one that an open move leaves cancels that move.
    to: String,
    /// The user to move; the tenant if absent.
    #[serde(default)]
    user: Option<UserId>,
}

/// `POST /v1/admin/tenants/{tenant}/moves`. Starts a move of the tenant or of one user, or carries it on if it has
/// started. A move to the shard that is being left cancels the open move.
pub(super) async fn create(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let gateway = call.gateway;
    let NewMove { to, user } = body::json(call.request)?;
    let tenant = existing_tenant(gateway, &call.tenant()).await?;
    let shards = &gateway.config.shards;
    if !shards.contains(&to) {
        return Err(Problem::field("/to", format!("expected one of: {}", shards.join(", "))));
    }
    if user.as_ref().is_some_and(|user| UserId::parse(user).is_none()) {
        return Err(Problem::field("/user", "not a valid id of a user"));
    }
    let mut details = Map::from_iter([("to".to_owned(), json!(to))]);
    details.extend(user.as_ref().map(|user| ("user".to_owned(), json!(user))));
    audit::record(call, &tenant.id, AuditAction::TenantMoved, &tenant.id, details).await?;
    let now = gateway.clock.now();
    let open = gateway.moves.latest(&tenant.id).await?.filter(|one| !one.phase.is_final());
    let is_accepted = match open {
        Some(one) if one.user != user => false,
        Some(one) if one.source == to => gateway.moves.cancel(&tenant.id, now).await?,
        Some(one) => one.target == to && one.phase != MovePhase::Canceling,
        None => {
            let source = source(gateway, &tenant, user.as_ref()).await?;
            if source == to {
                return Err(Problem::field("/to", "this is the current shard"));
            }
            let new = Move {
                id: gateway.make_id(),
                tenant: tenant.id.clone(),
                user,
                source,
                target: to,
                phase: MovePhase::Draining,
                since: now,
                copied: 0,
                started_at: now,
            };
            gateway.moves.start(&new).await?
        }
    };
    if !is_accepted {
        let detail = "another move of the tenant or of one of its users has not ended; read it with GET";
        return Err(Problem::new(ErrorCode::AlreadyExists, detail));
    }
    advance(gateway, Some(&tenant.id)).await;
    let latest = gateway.moves.latest(&tenant.id).await?;
    response::json(StatusCode::ACCEPTED, &latest.as_ref().map(view))
}

/// Returns the shard that a new move leaves.
async fn source(gateway: &Gateway, tenant: &Tenant, user: Option<&UserId>) -> Result<String, Problem> {
    let home = shard_of(gateway, tenant).unwrap_or_default();
    let moved = gateway.moves.user_shards(&tenant.id).await?;
    let Some(user) = user else {
        let apart = moved.iter().find(|(_, shard)| *shard != home).filter(|_| tenant.spread.is_none());
        if let Some((user, shard)) = apart {
            let detail = format!("the user {user} is on {shard}; move such users to {home} first");
            return Err(Problem::field("/to", detail));
        }
        return Ok(home.to_owned());
    };
    if let Some(shard) = moved.get(user) {
        return Ok(shard.clone());
    }
    if moved.len() >= MAX_MOVED_USERS {
        let detail = format!("{MAX_MOVED_USERS} users of the tenant have moved, and no more can");
        return Err(Problem::field("/user", detail));
    }
    let shards = &gateway.config.shards;
    let spread = tenant.spread.map(|count| shards.get(..count).unwrap_or(shards));
    Ok(spread.and_then(|shards| placement::user_shard(&tenant.id, user, shards)).unwrap_or(home).to_owned())
}

/// `GET /v1/admin/tenants/{tenant}/moves`: the latest move of the tenant or of one of its users, if any.
pub(super) async fn list(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let tenant = existing_tenant(call.gateway, &call.tenant()).await?;
    let latest = call.gateway.moves.latest(&tenant.id).await?;
    page::respond(Vec::from_iter(latest), 1, |one| one.id.clone(), view)
}

/// Runs from cron: carries on the moves that have not ended.
pub async fn sweep(gateway: &Gateway) {
    advance(gateway, None).await;
}

/// Carries on moves, once: a run may use almost half of the queries of an invocation. A failure goes to the log: the move is
/// stored, and the next run repeats the step that failed.
async fn advance(gateway: &Gateway, tenant: Option<&TenantId>) {
    if let Err(error) = gateway.moves.advance(tenant, gateway.clock.as_ref()).await {
        gateway.log.error(&json!({ "event": "move.failed", "cause": error.to_string() }));
    }
}

fn view(one: &Move) -> Value {
    let mut view = json!({
        "id": one.id, "from": one.source, "to": one.target, "phase": one.phase, "since": one.since,
        "copied_rows": one.copied, "started_at": one.started_at,
    });
    if let Some(user) = &one.user {
        view["user"] = json!(user);
    }
    view
}
