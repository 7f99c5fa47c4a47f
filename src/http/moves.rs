//! Moves of tenants between shards, for the operator.

use super::gateway::{Gateway, GatewayCall};
use super::response::{self, Response};
use super::tenants::{existing_tenant, shard_of};
use super::{audit, body, page};
use crate::ports::moves::{Move, MovePhase};
use crate::types::{AuditAction, ErrorCode, Problem, TenantId};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct NewMove {
    to: String,
}

/// `POST /v1/admin/tenants/{tenant}/moves`. Starts a move, or carries it on if it has started. A move to the shard that
/// the tenant is leaving cancels the open move.
pub(super) async fn create(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let gateway = call.gateway;
    let NewMove { to } = body::json(call.request)?;
    let tenant = existing_tenant(gateway, &call.tenant()).await?;
    let shards = &gateway.config.shards;
    if !shards.contains(&to) {
        return Err(Problem::field("/to", format!("expected one of: {}", shards.join(", "))));
    }
    let details = Map::from_iter([("to".to_owned(), json!(to))]);
    audit::record(call, &tenant.id, AuditAction::TenantMoved, &tenant.id, details).await?;
    if tenant.spread.is_some() {
        let detail = "the users of the tenant are spread over several shards, so it cannot move";
        return Err(Problem::field("/to", detail));
    }
    let now = gateway.clock.now();
    let open = gateway.moves.latest(&tenant.id).await?.filter(|one| !one.phase.is_final());
    let is_accepted = match open {
        Some(one) if one.source == to => gateway.moves.cancel(&tenant.id, now).await?,
        Some(one) => one.target == to && one.phase != MovePhase::Canceling,
        None => {
            let source = shard_of(gateway, &tenant).unwrap_or_default().to_owned();
            if source == to {
                return Err(Problem::field("/to", "the tenant is on this shard"));
            }
            let new = Move {
                id: gateway.make_id(),
                tenant: tenant.id.clone(),
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
        let detail = "another move of the tenant has not ended; read it with GET";
        return Err(Problem::new(ErrorCode::AlreadyExists, detail));
    }
    advance(gateway, Some(&tenant.id)).await;
    let latest = gateway.moves.latest(&tenant.id).await?;
    response::json(StatusCode::ACCEPTED, &latest.as_ref().map(view))
}

/// `GET /v1/admin/tenants/{tenant}/moves`: the latest move, if any.
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
    if let Err(error) = gateway.moves.advance(tenant, gateway.clock.now()).await {
        gateway.log.error(&json!({ "event": "move.failed", "cause": error.to_string() }));
    }
}

fn view(one: &Move) -> Value {
    json!({
        "id": one.id, "from": one.source, "to": one.target, "phase": one.phase, "since": one.since,
        "copied_rows": one.copied, "started_at": one.started_at,
    })
}
