//! Exports everything of a tenant, or of one of its users, as zip archives.
//!
//! An export consists of parts, because an invocation may make only so many calls. A part is sent while it is read, so
//! that no more than a piece of it is in memory. Its last entry, `manifest.json`, has the cursor of the next part and
//! names what could not be read.

mod files;
mod lines;
mod memory;
mod output;
mod part;
mod session;
mod sessions;
mod zip;

use super::audit::{self, Origin};
use super::gateway::{Gateway, GatewayCall, TenantCall};
use super::owner::{parse_user, user_of};
use super::request::{Request, RequestExt};
use super::response::{self, Body, Response, ResponseExt};
use super::tenants::{existing_tenant, view};
use super::{page, usage};
use crate::memory::Memories;
use crate::ports::ledger::UsagePages;
use crate::ports::{Directory, Ledger, SessionReader, directory::DirectoryError};
use crate::standard::agents::Agents;
use crate::types::{
    AuditAction, ConsentGiven, Day, ErrorCode, KeyId, MoveId, Principal, Problem, Scope, Scopes, UserId,
};
use crate::workspace::Workspaces;
use http::StatusCode;
use output::written;
use part::{Part, Subject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
pub use session::SessionExport;
pub(super) use session::of_session;
use std::rc::Rc;
use std::time::Duration;

/// How long an operator may read the log of a session. An operator has no credential that a session could check again.
const VALIDITY: Duration = Duration::from_hours(1);
/// Number of keys of one query.
const KEYS: usize = 200;
/// Maximum number of consents that are read at a time.
const CONSENTS: usize = 200;

/// Where the next part starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Position {
    /// The tenant itself.
    Start,
    Sessions(Option<sessions::LastSession>),
    Memory(Option<memory::LastCollection>),
    Files(Option<files::LastTree>),
}

impl Position {
    /// Returns whether it is a position in the export of this subject: clients could change a cursor. A session checks
    /// the user itself.
    fn is_of(&self, subject: &Subject) -> bool {
        match self {
            Self::Memory(Some(last)) => last.is_of(subject),
            Self::Files(Some(last)) => last.is_of(subject),
            Self::Start | Self::Sessions(_) | Self::Memory(None) | Self::Files(None) => true,
        }
    }
}

/// `GET /v1/admin/tenants/{tenant}/export`.
pub(super) async fn of_tenant(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let tenant = existing_tenant(call.gateway, &call.tenant()).await?;
    let user = named_user(call.request)?;
    let moved = call.gateway.last_move(&tenant.id).await?;
    let subject = Subject { tenant: tenant.id.clone(), user, moved };
    let from = position(call.request, &subject)?;
    record(call, &subject).await?;
    let reader = Principal {
        user: subject.user.clone(),
        policy: tenant.policy(),
        valid_until: call.gateway.clock.now() + VALIDITY,
        ..Principal::new(tenant.id.clone(), Scopes::new(vec![Scope::Read]))
    };
    Ok(respond(call.gateway, from, subject, view(call.gateway, &tenant), reader))
}

/// `GET /v1/export`. A token exports its own user only; a key needs the scope `admin`.
pub(super) async fn own(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let caller = call.caller;
    let user = match &caller.user {
        Some(_) => Some(user_of(caller, None, "?")?),
        None if !caller.scopes.allow(Scope::Admin) => {
            return Err(Problem::new(ErrorCode::MissingScope, "an export with a key needs the scope admin"));
        }
        None => named_user(call.request)?,
    };
    let tenant = call.gateway.directory.tenant(&caller.tenant).await?;
    let moved = call.gateway.last_move(&caller.tenant).await?;
    let subject = Subject { tenant: caller.tenant.clone(), user, moved };
    let from = position(call.request, &subject)?;
    record(call, &subject).await?;
    let about = tenant.map_or_else(|| json!({ "id": caller.tenant }), |tenant| view(call.gateway, &tenant));
    let scopes = Scopes::new(vec![Scope::Read]);
    let reader = Principal { user: subject.user.clone(), scopes, ..caller.clone() };
    Ok(respond(call.gateway, from, subject, about, reader))
}

/// Records the request in the audit trail.
async fn record<'a>(origin: impl Into<Origin<'a>>, subject: &Subject) -> Result<(), Problem> {
    let Subject { tenant, user, .. } = subject;
    match user {
        Some(user) => audit::record(origin, tenant, AuditAction::UserExported, user, Map::new()).await,
        None => audit::record(origin, tenant, AuditAction::TenantExported, tenant, Map::new()).await,
    }
}

/// Returns where the part starts. A move assigns new positions to memories, so older cursors are not valid.
fn position(request: &Request, subject: &Subject) -> Result<Position, Problem> {
    let Some((moved, from)) = page::cursor::<(Option<MoveId>, Position)>(request)? else {
        return Ok(Position::Start);
    };
    if moved != subject.moved {
        return Err(Problem::field(
            "?cursor",
            "the tenant has moved to another shard; start without a cursor",
        ));
    }
    if !from.is_of(subject) {
        return Err(Problem::field("?cursor", "not a cursor of this export; start without one"));
    }
    Ok(from)
}

/// Returns the user that the query names.
fn named_user(request: &Request) -> Result<Option<UserId>, Problem> {
    request.query("user").map(|named| parse_user(&named, "?")).transpose()
}

/// Responds with the part that starts at `from`. `about` describes the tenant, and `reader` reads its sessions.
fn respond(gateway: &Gateway, from: Position, subject: Subject, about: Value, reader: Principal) -> Response {
    let (clock, log) = (Rc::clone(&gateway.clock), Rc::clone(&gateway.log));
    let name = format!("export-{}.zip", subject.tenant);
    let export = Export {
        directory: Rc::clone(&gateway.directory),
        ledger: Rc::clone(&gateway.ledger),
        memories: Rc::clone(&gateway.memories),
        files: Rc::clone(&gateway.files),
        agents: Rc::clone(&gateway.agents),
        reader: Rc::clone(&gateway.reader),
        today: Day::of(clock.now()),
        principal: reader,
        about,
        subject: subject.clone(),
    };
    let body = written(|output| async move {
        let mut part = Part::new(output, subject, clock, log);
        let next = export.write(&mut part, from).await;
        part.finish(next).await;
        Ok(())
    });
    response::new(StatusCode::OK, Body::Stream(body))
        .with("content-type", "application/zip")
        .with("content-disposition", &super::disposition::attachment(&name))
        .with("cache-control", "no-store")
}

/// The sources of an export. It owns them, because its response outlives the request.
struct Export {
    directory: Rc<dyn Directory>,
    agents: Rc<Agents>,
    ledger: Rc<dyn Ledger>,
    memories: Rc<Memories>,
    files: Rc<Workspaces>,
    reader: Rc<dyn SessionReader>,
    today: Day,
    /// Reads the sessions of the tenant.
    principal: Principal,
    /// The tenant as the operator sees it.
    about: Value,
    subject: Subject,
}

impl Export {
    /// Writes a part. Returns where the next one starts; `None` if this is the last one.
    async fn write(&self, part: &mut Part, mut from: Position) -> Option<Position> {
        loop {
            let (stopped, next) = match from {
                Position::Start => (self.write_tenant(part).await, Some(Position::Sessions(None))),
                Position::Sessions(last) => {
                    (sessions::write(self, part, last).await, Some(Position::Memory(None)))
                }
                Position::Memory(last) => {
                    (memory::write(self, part, last).await, Some(Position::Files(None)))
                }
                Position::Files(last) => (files::write(self, part, last).await, None),
            };
            if stopped.is_some() {
                return stopped;
            }
            from = next?;
        }
    }

    /// Writes the tenant, its keys, its agents, its consent at servers of MCP, and its usage; of a user, only the last two.
    async fn write_tenant(&self, part: &mut Part) -> Option<Position> {
        if self.subject.user.is_none() {
            part.entry("tenant.json", self.about.to_string()).await;
            self.write_keys(part).await;
            self.write_agents(part).await;
        }
        self.write_consents(part).await;
        let from = self.today.earlier(usage::MAX_DAYS - 1);
        part.begin("usage.ndjson").await;
        let user = self.subject.user.as_ref();
        let mut pages = UsagePages::new(self.ledger.as_ref(), &self.subject.tenant, from, self.today);
        loop {
            match pages.next().await {
                Ok(Some(rows)) => {
                    part.spend(1);
                    for row in rows.iter().filter(|row| user.is_none_or(|user| row.key.user == *user)) {
                        part.line(&usage::row(row)).await;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    part.fail("usage.ndjson", "incomplete: the usage is unavailable", &error);
                    break;
                }
            }
        }
        part.end().await;
        None
    }

    /// Writes the agents with their active versions.
    async fn write_agents(&self, part: &mut Part) {
        part.begin("agents.ndjson").await;
        part.spend(1);
        if let Err(error) = self.write_each_agent(part).await {
            part.fail("agents.ndjson", "incomplete: the agents are unavailable", &error);
        }
        part.end().await;
    }

    async fn write_each_agent(&self, part: &mut Part) -> Result<(), DirectoryError> {
        let (tenant, store) = (&self.subject.tenant, self.agents.store());
        for entry in store.list(tenant).await? {
            part.spend(1);
            let version = store.version(tenant, &entry.id, entry.active).await?;
            part.line(&json!({ "id": entry.id, "deleted_at": entry.deleted_at, "active": version })).await;
        }
        Ok(())
    }

    /// Writes with which servers users are connected.
    async fn write_consents(&self, part: &mut Part) {
        let Subject { tenant, user, .. } = &self.subject;
        part.begin("consents.ndjson").await;
        let mut after: Option<ConsentGiven> = None;
        loop {
            part.spend(1);
            match self.agents.mcp().consents(tenant, user.as_ref(), after.as_ref(), CONSENTS).await {
                Ok(page) => {
                    for given in &page {
                        part.line(given).await;
                    }
                    after = page.into_iter().nth(CONSENTS - 1);
                    if after.is_none() {
                        break;
                    }
                }
                Err(error) => {
                    part.fail("consents.ndjson", "incomplete: the consent is unavailable", &error);
                    break;
                }
            }
        }
        part.end().await;
    }

    async fn write_keys(&self, part: &mut Part) {
        part.begin("keys.ndjson").await;
        let mut after: Option<KeyId> = None;
        loop {
            part.spend(1);
            match self.directory.keys(&self.subject.tenant, after.as_ref(), KEYS).await {
                Ok(page) => {
                    for key in &page {
                        part.line(key).await;
                    }
                    match page.last() {
                        Some(key) if page.len() == KEYS => after = Some(key.id.clone()),
                        _ => break,
                    }
                }
                Err(error) => {
                    part.fail("keys.ndjson", "incomplete: the keys are unavailable", &error);
                    break;
                }
            }
        }
        part.end().await;
    }
}
