//! The gateway: who sends a request, and which version of the tenant's policy its isolate knows.

use super::{client::Client, dice::Dice, node::Node, world::World};
use edge_harness::http::{route::Handler, routes, session::call::SessionRequest};
use edge_harness::types::{
    ErrorCode, Principal, Problem, Rules, Scope, Scopes, SessionPermissions, TenantId, TenantLimits,
    TenantPolicy, Timestamp,
};
use serde_json::{Value, json};
use std::{cell::Cell, rc::Rc};

/// The credential of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A token of the session's user with all scopes. It decides nothing.
    Owner,
    /// A token of the session's user with the scopes `chat` and `read`.
    User,
    /// A key with the scopes `chat` and `read`.
    Desk,
    /// A key with the scopes `chat`, `read` and `approve`.
    Approver,
    /// A key with the scope `read`.
    Reader,
    /// A key with the scope `approve`, which is not sufficient to decide.
    Signer,
}

impl Caller {
    /// Those who try to decide.
    pub const DECIDING: [Self; 8] = [
        Self::User,
        Self::User,
        Self::Desk,
        Self::Desk,
        Self::Approver,
        Self::Approver,
        Self::Reader,
        Self::Signer,
    ];

    fn scopes(self) -> Scopes {
        match self {
            Self::Owner => Scopes::all(),
            Self::User | Self::Desk => Scopes::new(vec![Scope::Chat, Scope::Read]),
            Self::Approver => Scopes::new(vec![Scope::Chat, Scope::Read, Scope::Approve]),
            Self::Reader => Scopes::new(vec![Scope::Read]),
            Self::Signer => Scopes::new(vec![Scope::Approve]),
        }
    }

    /// Returns the id of the key, unless the credential is a token.
    fn key(self) -> Option<&'static str> {
        match self {
            Self::Owner | Self::User => None,
            Self::Desk => Some("k_desk"),
            Self::Approver => Some("k_approver"),
            Self::Reader => Some("k_reader"),
            Self::Signer => Some("k_signer"),
        }
    }

    /// Returns whether it may send messages and decide.
    pub fn may_chat(self) -> bool {
        matches!(self, Self::Owner | Self::User | Self::Desk | Self::Approver)
    }

    /// Returns whether it may approve what a rule of the operator asks about.
    pub fn may_approve(self) -> bool {
        matches!(self, Self::Owner | Self::Approver)
    }

    /// Returns what `by` says in the records of its decisions.
    pub fn by(self, user: &str) -> Value {
        match self.key() {
            Some(key) => json!({ "key": key }),
            None => json!({ "user": user }),
        }
    }
}

/// The policies of a tenant in the order of their versions, which start at 1, each with the time when the operator sets
/// it, in milliseconds from the start.
pub type Policies = Vec<(u64, Rules)>;

/// A policy or the permissions of a parent, sent to an object.
pub struct Received {
    /// The version of the policy.
    pub version: u64,
    /// The permissions of the parent's session, and when it read them.
    pub parents: Option<(Timestamp, SessionPermissions)>,
    /// When it was sent.
    pub sent: u64,
    /// When a response said that it has arrived.
    pub arrived: Cell<Option<u64>>,
}

impl Node {
    /// Records that a policy is sent to the object.
    pub fn receive(
        &self,
        version: u64,
        parents: Option<(Timestamp, SessionPermissions)>,
        sent: u64,
    ) -> Rc<Received> {
        let received = Rc::new(Received { version, parents, sent, arrived: Cell::new(None) });
        self.received.borrow_mut().push(Rc::clone(&received));
        received
    }
}

impl World {
    /// Returns the policies of a tenant; none if they are never set.
    pub fn policies(&self, tenant: &TenantId) -> &[(u64, Rules)] {
        self.ledger.scenario.people.tenants.get(tenant).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the policy that an isolate sends: the newest one, or an older one from its cache.
    fn policy(&self, tenant: &TenantId, dice: &mut Dice) -> TenantPolicy {
        let policies = self.policies(tenant);
        let ms = self.sched.now() - super::sched::START;
        let newest = policies.iter().filter(|(at, _)| *at <= ms).count();
        let stale = newest > 1 && dice.chance(25);
        let version = if stale { dice.within(1, newest as u64 - 1) } else { newest as u64 };
        let rules = usize::try_from(version).ok().and_then(|version| policies.get(version.checked_sub(1)?));
        let rules = rules.map(|(_, rules)| rules.clone()).unwrap_or_default();
        TenantPolicy { rules, limits: TenantLimits::default(), version }
    }
}

impl Client {
    /// Returns the principal of a caller in the session's tenant.
    pub fn principal(&self, caller: Caller) -> Principal {
        let tenant = &self.scenario.tenant;
        let key = caller.key();
        Principal {
            user: key.is_none().then(|| self.scenario.user.clone()),
            key: key.map(Into::into),
            policy: self.world.policy(tenant, &mut self.world.isolates.borrow_mut()),
            ..Principal::new(tenant.clone(), caller.scopes())
        }
    }

    /// Records that the session receives the policy of a request. Also returns whether there is a session that has to
    /// apply it.
    pub fn received(&self, call: &SessionRequest) -> Option<(Rc<Received>, bool)> {
        let version = call.principal.policy.version;
        let found = routes::find(call.request.method(), call.request.uri().path()).ok()?;
        // A deletion does not read the session.
        let is_unread = matches!(found.route.handler, Handler::Unread(..));
        if version == 0 || is_unread || authorize(call).is_err() {
            return None;
        }
        let exists = self.node.disk.documents.borrow().contains_key("state");
        Some((self.node.receive(version, None, self.world.sched.now()), exists))
    }
}

/// Refuses a request whose credential lacks the scope of its route.
///
/// # Errors
/// As the gateway.
pub fn authorize(call: &SessionRequest) -> Result<(), Problem> {
    let found = routes::find(call.request.method(), call.request.uri().path())?;
    match found.route.handler {
        Handler::Session(scope, _)
        | Handler::Face(scope, ..)
        | Handler::Split(scope, ..)
        | Handler::NewSession(scope, _)
        | Handler::Unread(scope, _)
            if !call.principal.scopes.allow(scope) =>
        {
            Err(Problem::new(ErrorCode::MissingScope, "the credential lacks the scope of the route"))
        }
        _ => Ok(()),
    }
}
