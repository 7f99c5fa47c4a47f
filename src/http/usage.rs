//! The usage of a tenant, for the operator and for the tenant itself.

use super::gateway::{Gateway, GatewayCall, TenantCall};
use super::page;
use super::request::{Request, RequestExt};
use super::response::{self, Response};
use super::tenants::existing_tenant;
use crate::ports::ledger::UsagePages;
use crate::types::{Day, Problem, StorageUse, TenantId, UsageKey, UsageRow, UsageTotals, UserId};
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Number of days without `?from=`, today included.
const DEFAULT_DAYS: u64 = 30;
/// Maximum number of days.
pub(super) const MAX_DAYS: u64 = 400;

/// The field by which rows are grouped.
#[derive(Clone, Copy)]
enum Group {
    Day,
    Agent,
    Model,
    User,
}

impl Group {
    const NAMES: [(&str, Self); 4] =
        [("day", Self::Day), ("agent", Self::Agent), ("model", Self::Model), ("user", Self::User)];

    fn of(self, key: &UsageKey) -> String {
        match self {
            Self::Day => key.day.to_string(),
            Self::Agent => key.agent.to_string(),
            Self::Model => key.model.clone(),
            Self::User => key.user.to_string(),
        }
    }
}

/// `GET /v1/admin/tenants/{tenant}/usage`.
pub(super) async fn of_tenant(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let tenant = existing_tenant(call.gateway, &call.tenant()).await?;
    let user = call.request.query("user").map(UserId::from);
    respond(call.gateway, call.request, &tenant.id, user.as_ref()).await
}

/// `GET /v1/usage`. A token or ticket shows the usage of its own user only.
pub(super) async fn own(call: &TenantCall<'_>) -> Result<Response, Problem> {
    respond(call.gateway, call.request, &call.caller.tenant, call.listed_user().as_ref()).await
}

async fn respond(
    gateway: &Gateway,
    request: &Request,
    tenant: &TenantId,
    user: Option<&UserId>,
) -> Result<Response, Problem> {
    let to = day(request, "to")?.unwrap_or_else(|| Day::of(gateway.clock.now()));
    let from = day(request, "from")?.unwrap_or_else(|| to.earlier(DEFAULT_DAYS - 1));
    if from > to || to.since(from) >= MAX_DAYS {
        return Err(Problem::field("?from", format!("expected at most {MAX_DAYS} days up to `to`")));
    }
    let (name, group) = match request.query("group") {
        None => ("day", Group::Day),
        Some(wish) => Group::NAMES
            .into_iter()
            .find(|(name, _)| *name == wish)
            .ok_or_else(|| Problem::field("?group", "expected day, agent, model or user"))?,
    };
    let (limit, after) = (page::limit(request)?, page::cursor::<String>(request)?);
    let storage = gateway.directory.storage(tenant, user).await?;
    let (mut groups, mut total) = (BTreeMap::<String, UsageTotals>::new(), UsageTotals::default());
    let mut pages = UsagePages::new(gateway.ledger.as_ref(), tenant, from, to);
    while let Some(rows) = pages.next().await? {
        for row in rows.iter().filter(|row| user.is_none_or(|user| row.key.user == *user)) {
            *groups.entry(group.of(&row.key)).or_default() += row.totals;
            total += row.totals;
        }
    }
    let mut stored = BTreeMap::<String, StorageUse>::new();
    if matches!(group, Group::Day) && user.is_none() {
        let days = gateway.directory.stored_by_day(tenant, from, to).await?;
        stored.extend(days.into_iter().map(|(day, used)| (day.to_string(), used)));
        for day in stored.keys() {
            groups.entry(day.clone()).or_default();
        }
    }
    let rest = groups.into_iter().filter(|(key, _)| after.as_ref().is_none_or(|after| key > after));
    let mut page: Vec<_> = rest.take(limit + 1).collect();
    let more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| more).map(|(key, _)| page::encode(key)).transpose()?;
    let data: Vec<Value> = page
        .into_iter()
        .map(|(key, totals)| {
            let mut row = view(&totals);
            row.extend(stored.get(&key).map(|used| ("storage".to_owned(), json!(used))));
            row.insert(name.to_owned(), key.into());
            Value::Object(row)
        })
        .collect();
    response::json(
        StatusCode::OK,
        &json!({
            "from": from, "to": to, "group": name, "data": data, "total": view(&total), "next_cursor": next,
            "storage": storage,
        }),
    )
}

fn day(request: &Request, name: &str) -> Result<Option<Day>, Problem> {
    let Some(text) = request.query(name) else { return Ok(None) };
    let day = Day::parse(&text);
    day.map(Some).ok_or_else(|| Problem::field(format!("?{name}"), "expected a UTC date such as 2026-11-20"))
}

/// Returns a row with all fields by which rows are grouped.
pub(super) fn row(row: &UsageRow) -> Value {
    let mut view = view(&row.totals);
    for (name, group) in Group::NAMES {
        view.insert(name.to_owned(), group.of(&row.key).into());
    }
    Value::Object(view)
}

/// Returns sums as clients see them.
fn view(totals: &UsageTotals) -> Map<String, Value> {
    let UsageTotals { turns, steps, tool_calls, tokens, cost } = totals;
    let mut view = Map::new();
    for (name, count) in [
        ("turns", turns),
        ("steps", steps),
        ("tool_calls", tool_calls),
        ("input_tokens", &tokens.input_tokens),
        ("output_tokens", &tokens.output_tokens),
        ("cache_read_tokens", &tokens.cache_read_tokens),
        ("cache_write_tokens", &tokens.cache_write_tokens),
        ("reasoning_tokens", &tokens.reasoning_tokens),
        ("total_tokens", &tokens.total_tokens),
    ] {
        view.insert(name.to_owned(), (*count).into());
    }
    view.insert("cost_usd".to_owned(), cost.usd().into());
    view
}
