//! What one session's object answers. Runs inside the object, next to the session's state.

mod artifacts;
mod decisions;
mod events;
mod feed;
mod follow;
mod fork;
mod permissions;
mod resource;
pub mod socket;
mod turns;

use super::{ApiBody, ApiRequest, ApiResponse, idempotency, routes::SessionRoute};
use crate::agent::SessionHost;
use crate::fault::{self, Fault};
use crate::ports::SessionStore;
use crate::session::{
    Session,
    idempotency::{Answer, FirstAnswer, KEEP_MS, document, document_key, find},
    owner,
};
use crate::types::{ErrorCode, Owner, Principal, Problem, SessionMeta, TenantId, id};
use futures::{FutureExt, future::LocalBoxFuture};
use std::rc::Rc;

/// The longest user name, title and the like are bounded by the ids' own rule; free objects by this.
const MAX_OBJECT_BYTES: usize = 64 << 10;

/// A request that the front has let through.
pub struct SessionRequest {
    /// Who asks.
    pub principal: Principal,
    /// The session.
    pub session: String,
    /// What is asked.
    pub route: SessionRoute,
    /// The path's last named segment: a turn, a queued item, a call or an artifact.
    pub item: String,
    /// The request, body included.
    pub request: ApiRequest,
}

/// What handlers work with.
pub struct Handler {
    /// The session and its agent.
    pub host: Rc<SessionHost>,
}

impl Handler {
    /// Answers a request.
    ///
    /// # Errors
    /// The problem to answer with.
    pub async fn handle(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        if call.route != SessionRoute::Delete {
            self.host.recover()?;
            self.govern(call)?;
        }
        match call.route {
            SessionRoute::Create => self.once(call, self.create(call).boxed_local()).await,
            SessionRoute::Fork => self.once(call, self.fork(call).boxed_local()).await,
            SessionRoute::Attach => self.once(call, self.attach(call).boxed_local()).await,
            SessionRoute::Artifact => self.show_artifact(call).await,
            SessionRoute::Abort => self.once(call, self.abort(call).boxed_local()).await,
            SessionRoute::Compact => self.once(call, self.compact(call).boxed_local()).await,
            SessionRoute::PostMessage => self.post_message(call, None).await,
            SessionRoute::Steer => self.post_message(call, Some(crate::agent::OnBusy::Steer)).await,
            SessionRoute::Show => shown(200, self.session(call)?.as_ref()),
            SessionRoute::View => {
                let begun = |call_id: &str| self.host.has_begun(call_id);
                ApiResponse::json(200, &self.session(call)?.display(begun)?)
            }
            SessionRoute::Update => self.update(call).await,
            SessionRoute::Delete => self.delete(call).await,
            SessionRoute::ListMessages => self.list_messages(call),
            SessionRoute::ShowTurn => self.show_turn(call),
            SessionRoute::Events => self.events(call),
            SessionRoute::Dequeue => self.dequeue(call),
            SessionRoute::Approve => self.once(call, self.approve(call).boxed_local()).await,
            SessionRoute::Answer => self.once(call, self.answer(call).boxed_local()).await,
            // The platform upgrades the connection before it gets here.
            SessionRoute::WebSocket => Err(Problem::new(
                crate::types::ErrorCode::InvalidRequest,
                "this route speaks WebSocket: send the Upgrade header",
            )),
        }
    }

    /// Tells the session the rules of its tenant, which come with the request.
    fn govern(&self, call: &SessionRequest) -> Result<(), Problem> {
        self.host.govern(&call.principal.tenant, &call.principal.rules)
    }

    /// The session, if there is one and it is the caller's.
    ///
    /// # Errors
    /// 404 for both a missing and a foreign one.
    pub fn session(&self, call: &SessionRequest) -> Result<Rc<Session>, Problem> {
        let named = call.request.query("user");
        self.find(call, named.as_deref())?.ok_or_else(|| Problem::not_found("session"))
    }

    /// Like [`Handler::session`], but a missing one is `None`. `named` is the user that the request
    /// names; a token's own user stands above it.
    fn find(&self, call: &SessionRequest, named: Option<&str>) -> Result<Option<Rc<Session>>, Problem> {
        let Some(session) = self.host.open()? else { return Ok(None) };
        let owned = {
            let meta = &session.state().meta;
            is_owner(call, named, &meta.tenant, &meta.user)
        };
        if owned { Ok(Some(session)) } else { Err(Problem::not_found("session")) }
    }

    /// The store of the caller's session, also where the session cannot be read.
    ///
    /// # Errors
    /// 404 for both a missing and a foreign one.
    fn owned(&self, call: &SessionRequest) -> Result<Rc<dyn SessionStore>, Problem> {
        // A session that is not stored yet stands on the same store.
        let blank = self.host.blank(self.new_meta(call, None)?);
        let store = Rc::clone(blank.store());
        let owner = owner(store.as_ref())?;
        let named = call.request.query("user");
        let owned = owner.is_some_and(|owner| is_owner(call, named.as_deref(), &owner.tenant, &owner.user));
        if owned { Ok(store) } else { Err(Problem::not_found("session")) }
    }

    /// A session that the caller makes.
    fn new_meta(&self, call: &SessionRequest, user: Option<String>) -> Result<SessionMeta, Problem> {
        let user = call.principal.user.clone().or(user).unwrap_or_else(|| "default".into());
        if !id::is_user(&user) {
            return Err(Problem::field(
                "/user",
                "expected 1 to 128 bytes without / \\ and control characters",
            ));
        }
        let (tenant, agent) = (call.principal.tenant.clone(), crate::standard::DEFAULT_AGENT.to_owned());
        let mut meta = SessionMeta::new(&call.session, Owner { tenant, agent, user }, self.host.now());
        if let Some(first) = self.host.agent().modes().first() {
            meta.begin_in(first);
        }
        meta.state = self.host.agent().state().initial().clone();
        Ok(meta)
    }

    /// Runs a POST once per Idempotency-Key: an answer of success is kept in the session.
    async fn once(
        &self,
        call: &SessionRequest,
        work: LocalBoxFuture<'_, Result<ApiResponse, Problem>>,
    ) -> Result<ApiResponse, Problem> {
        let Some(key) = idempotency::key(&call.request)? else { return work.await };
        let document_key = idempotency_document(call, key);
        let body_hash = idempotency::body_hash(&call.request.body);
        // The caller's own only: a foreign session's memory of keys is as invisible as the session.
        let named = call.request.query("user");
        if let Some(session) = self.find(call, named.as_deref())?
            && let Some(first) = find(&session, &document_key, self.host.now())?
        {
            return match first.answer {
                _ if first.body_hash != body_hash => Err(idempotency::reused()),
                Answer::Json(status, body) => Ok(replayed(status, body)),
                Answer::Turn(_) => Err(Problem::internal("a turn's answer under another route")),
            };
        }
        let response = work.await?;
        if let (200..300, ApiBody::Bytes(body)) = (response.status, &response.body)
            && let Some(session) = self.host.open()?
        {
            let answer = Answer::Json(response.status, String::from_utf8_lossy(body).into_owned());
            let json = document(&FirstAnswer { body_hash, at: self.host.now(), answer })?;
            let (now, until) = (self.host.now(), self.host.now().plus(KEEP_MS));
            session.commit(now, |draft| draft.put_until(document_key, json, until))?;
        }
        Ok(response)
    }
}

/// Refuses what is not for the session of a subagent: it does its errand, under the rules of the session that sent
/// it out.
fn not_of_a_subagent(session: &Session) -> Result<(), Problem> {
    match &session.state().meta.parent {
        Some(parent) => {
            let detail = format!("this is for the session that sent the subagent out: {}", parent.session);
            Err(Problem::new(ErrorCode::SubagentSession, detail))
        }
        None => Ok(()),
    }
}

/// A session as clients see it.
fn shown(status: u16, session: &Session) -> Result<ApiResponse, Problem> {
    ApiResponse::json(status, &session.view()?)
}

/// Whether the caller may see a session of this tenant and user.
fn is_owner(call: &SessionRequest, named: Option<&str>, tenant: &TenantId, user: &str) -> bool {
    let asking = call.principal.user.as_deref().or(named);
    let owned = *tenant == call.principal.tenant && asking.is_none_or(|asking| asking == user);
    owned || fault::active(Fault::OpenToAll)
}

/// Where a session keeps the first answer to this request.
fn idempotency_document(call: &SessionRequest, key: &str) -> String {
    document_key(&format!("{:?}/{}", call.route, call.item), key)
}

fn replayed(status: u16, body: String) -> ApiResponse {
    ApiResponse::bytes(status, "application/json", body).with("idempotent-replayed", "true")
}
