//! The gateway: the principal of a request, and which version of the tenant's policy its isolate knows.

use super::Client;
use crate::{
    caller::Caller,
    dice::Dice,
    sched::START,
    world::{Received, World},
};
use edge_harness::http::{route::Handler, routes, session::call::SessionRequest};
use edge_harness::types::{ErrorCode, Principal, Problem, TenantId, TenantLimits, TenantPolicy};
use std::rc::Rc;

/// Returns the policy that an isolate sends: the newest one, or an older one from its cache.
fn policy(world: &World, tenant: &TenantId, dice: &mut Dice) -> TenantPolicy {
    let policies = world.policies(tenant);
    let ms = world.sched.now() - START;
    let newest = policies.iter().filter(|(at, _)| *at <= ms).count();
    let stale = newest > 1 && dice.chance(25);
    let version = if stale { dice.within(1, newest as u64 - 1) } else { newest as u64 };
    let rules = usize::try_from(version).ok().and_then(|version| policies.get(version.checked_sub(1)?));
    let rules = rules.map(|(_, rules)| rules.clone()).unwrap_or_default();
    TenantPolicy { rules, limits: TenantLimits::default(), version }
}

impl Client {
    /// Returns the principal of a caller in the session's tenant.
    pub fn principal(&self, caller: Caller) -> Principal {
        let tenant = &self.scenario.tenant;
        let key = caller.key();
        Principal {
            user: key.is_none().then(|| self.scenario.user.clone()),
            key: key.map(Into::into),
            policy: policy(&self.world, tenant, &mut self.world.isolates.borrow_mut()),
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
