//! The context of the handlers of a session.

use crate::agent::{SessionHost, host::InFlight};
use crate::http::idempotency::RequestKey;
use crate::http::owner::{agent_of, check_user, user_of};
use crate::http::pattern::Params;
use crate::http::request::{Request, RequestExt};
use crate::session::{self, OpenError, Session};
use crate::types::{Owner, Principal, Problem, RequestId, SessionId, SessionMeta, TenantId, UserId};
use http::Method;
use std::rc::Rc;

/// A request to the object of a session.
#[derive(Clone)]
pub struct SessionRequest {
    /// The authenticated caller.
    pub principal: Principal,
    /// The id of the session.
    pub session: SessionId,
    /// The id of the request.
    pub id: RequestId,
    /// The request, with its body.
    pub request: Request,
}

/// A request to a session that has been looked up.
pub struct Call<'a> {
    /// The session's host.
    pub host: &'a Rc<SessionHost>,
    /// The authenticated caller.
    pub principal: &'a Principal,
    /// The id of the session.
    pub session_id: &'a SessionId,
    /// The id of the request.
    pub request_id: &'a RequestId,
    /// The request, with its body.
    pub request: &'a Request,
    /// The parameters of the path.
    pub params: Params,
    /// The Idempotency-Key of a POST.
    pub key: Option<RequestKey>,
    /// The session of this object, or the owner of a session that this version cannot read. Either may belong
    /// to another user.
    session: Found,
    /// Absent for a request that only reads.
    in_flight: Option<Rc<InFlight>>,
}

/// A looked up session; see [`Call`].
type Found = Result<Option<Rc<Session>>, (Owner, OpenError)>;

impl<'a> Call<'a> {
    /// Looks up the session, and recovers a turn that was interrupted. This is the only place where a request
    /// of a client enters a session. Waits until a running erasure has ended.
    ///
    /// # Errors
    /// A failed store.
    pub async fn enter(
        host: &'a Rc<SessionHost>,
        asked: &'a SessionRequest,
        params: Params,
        key: Option<RequestKey>,
    ) -> Result<Self, Problem> {
        host.await_erasure().await?;
        let session = look_up(host)?;
        let SessionRequest { principal, session: session_id, id: request_id, request } = asked;
        let in_flight = (request.method() != Method::GET).then(|| Rc::new(host.count_in_flight()));
        Ok(Self { host, principal, session_id, request_id, request, params, key, session, in_flight })
    }

    /// Looks up the session again, after an await. Waits until a running erasure has ended.
    ///
    /// # Errors
    /// As for [`Call::enter`].
    pub async fn again(&self) -> Result<Self, Problem> {
        self.host.await_erasure().await?;
        let session = look_up(self.host)?;
        let in_flight = self.in_flight.clone();
        Ok(Self { session, params: self.params.clone(), key: self.key.clone(), in_flight, ..*self })
    }

    /// Returns whether this version can read the session, or there is none.
    pub fn is_readable(&self) -> bool {
        self.session.is_ok()
    }

    /// Returns the caller's session.
    ///
    /// # Errors
    /// See [`Call::find`]. `not_found` for a missing session.
    pub fn session(&self) -> Result<&Rc<Session>, Problem> {
        self.session_of(None)
    }

    /// Returns the caller's session, for a request whose body may name the user.
    ///
    /// # Errors
    /// See [`Call::session`].
    pub fn session_of(&self, user_in_body: Option<String>) -> Result<&Rc<Session>, Problem> {
        let user = self.named_user(user_in_body)?;
        self.find(user.as_deref())?.ok_or_else(|| Problem::not_found("session"))
    }

    /// Returns the caller's session, or `None` if there is none yet. `user` is the user that the request
    /// names.
    ///
    /// # Errors
    /// `not_found` for a session of another user, `newer_session` for one that a newer version has written.
    pub fn find(&self, user: Option<&str>) -> Result<Option<&Rc<Session>>, Problem> {
        let is_visible = match &self.session {
            Ok(None) => return Ok(None),
            Ok(Some(session)) => {
                let meta = &session.state().meta;
                may_see(self.principal, user, &meta.tenant, &meta.user)
            }
            Err((owner, _)) => may_see(self.principal, user, &owner.tenant, &owner.user),
        };
        if !is_visible {
            return Err(Problem::not_found("session"));
        }
        match &self.session {
            Ok(session) => Ok(session.as_ref()),
            Err((_, newer)) => Err(newer.clone().into()),
        }
    }

    /// Returns the user that the body names, or else the query.
    ///
    /// # Errors
    /// `user_mismatch` if the body names another user than that of the token or ticket.
    pub fn named_user(&self, user_in_body: Option<String>) -> Result<Option<String>, Problem> {
        check_user(self.principal, user_in_body.as_deref(), "/")?;
        Ok(user_in_body.or_else(|| self.request.query("user")))
    }

    /// Builds the metadata of a session that the caller creates. The user of a token or ticket takes precedence over
    /// `user`. Without an agent in the body, the session gets the one in the query.
    ///
    /// # Errors
    /// `validation_failed` for an invalid user or agent; `unavailable` if a request for another user or agent came between.
    pub fn new_meta(
        &self,
        user: Option<String>,
        agent_in_body: Option<String>,
    ) -> Result<SessionMeta, Problem> {
        let (host, tenant) = (self.host, self.principal.tenant.clone());
        let user = user_of(self.principal, user.as_deref(), "/")?;
        let agent = agent_of(agent_in_body.or_else(|| self.request.query("agent")).as_deref(), "/")?;
        let owner = Owner { tenant, agent, user };
        let version = host.loaded_version(&owner)?;
        let own = host.agent();
        let mut meta = SessionMeta::new(self.session_id.clone(), owner, host.now());
        meta.agent_version = version;
        meta.budget = own.budget();
        if let Some(first) = own.modes().first() {
            meta.begin_in(first, &host.tenant_limits());
        }
        meta.state = own.state().initial().clone();
        Ok(meta)
    }
}

fn look_up(host: &Rc<SessionHost>) -> Result<Found, Problem> {
    match host.recover() {
        Ok(session) => Ok(Ok(session)),
        Err(newer @ OpenError::Newer(_)) => match session::owner(host.store().as_ref())? {
            Some(owner) => Ok(Err((owner, newer))),
            None => Err(newer.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the caller may see a session of this tenant and user. `named` is the user that the request
/// names.
pub fn may_see(principal: &Principal, named: Option<&str>, tenant: &TenantId, user: &UserId) -> bool {
    let asking = principal.user.as_deref().or(named);
    *tenant == principal.tenant && asking.is_none_or(|asking| user == asking)
}
