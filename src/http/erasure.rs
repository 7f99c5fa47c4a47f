//! Erases deleted tenants, and users of tenants. A request and a cron run make a bounded number of calls of databases
//! and objects; later ones continue.

use super::auth_cache::CREDENTIAL_TTL;
use super::gateway::Gateway;
use super::placement::SHARD_TTL;
use crate::ports::Clock;
use crate::ports::directory::{SHARDS_PER_SWEEP, SessionKinds};
use crate::types::{Problem, SessionId, TenantId, Timestamp, UserId};
use futures::{StreamExt, stream};
use serde_json::json;
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of calls of a cron run: the platform allows 1,000 in one invocation, and moves of tenants need almost half.
const RUN_CALLS: usize = 450;
/// Time of a cron run. The next one starts a minute later.
const RUN_TIME: Duration = Duration::from_secs(45);
/// Number of calls of a request.
const REQUEST_CALLS: usize = 120;
/// Time of a request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Number of sessions that are erased at the same time.
const CONCURRENT: usize = 8;
/// Maximum number of sessions that one step erases.
const SESSIONS_PER_STEP: usize = 200;
/// Maximum number of calls of a step besides those for sessions, for a tenant with one shard.
const STEP_CALLS: usize = 17;
/// Maximum number of calls of a step for each further shard of the tenant.
const SHARD_CALLS: usize = 8;
/// Maximum number of calls to purge a tenant, besides two for each shard.
const PURGE_CALLS: usize = 8;
/// Maximum number of deleted tenants that one run processes.
const TENANTS_PER_RUN: usize = 500;
/// Number of calls that are left to erasures by [`maintain`], after its first pass.
const ERASURE_CALLS: usize = 250;
/// Maximum number of passes of [`maintain`].
const MAINTENANCE_PASSES: usize = 5;
/// The calls of a pass for each shard that it sweeps, and for each shard.
const SWEEP_CALLS: usize = 8;
const FORGET_CALLS: usize = 1;

/// Returns the minimum time before the id of a deleted tenant can be used again. By then every isolate's cache
/// has dropped the tenant's keys and shard: a cached key could open the next tenant with that id.
pub fn id_held() -> Duration {
    CREDENTIAL_TTL.max(SHARD_TTL) * 2
}

/// Erases as much of a newly deleted tenant as one request may. Cron does the rest, and what fails here.
pub(super) async fn begin(gateway: &Gateway, tenant: &TenantId) {
    let allowance = Allowance::new(gateway, REQUEST_CALLS, REQUEST_TIME);
    let mut erasure = Erasure::new(tenant.clone(), None);
    if let Err(problem) = erasure.steps(gateway, &allowance).await {
        log_failure(gateway, tenant, &problem);
    }
}

/// Erases as much of a user's sessions, memory and files, with all agents, as one request may. Returns the number of
/// sessions that are left, or `None` if nothing is left.
///
/// # Errors
/// `unavailable` when a store fails, or if all that is left are sessions that cannot be erased now.
pub(super) async fn erase_user(
    gateway: &Gateway,
    tenant: &TenantId,
    user: &UserId,
) -> Result<Option<u64>, Problem> {
    let allowance = Allowance::new(gateway, REQUEST_CALLS, REQUEST_TIME);
    let mut erasure = Erasure::new(tenant.clone(), Some(user.clone()));
    match (erasure.steps(gateway, &allowance).await?, erasure.failed) {
        (true, 0) => Ok(None),
        (true, failed) => {
            let detail = "some sessions of the user cannot be erased now; try again";
            Err(Problem::unavailable(detail, format!("{failed} sessions failed")))
        }
        (false, _) => Ok(Some(gateway.directory.count_sessions(tenant, Some(user)).await?)),
    }
}

/// Runs from cron: removes expired rows and unused objects, and continues the erasure of deleted tenants. Returns whether
/// work is left for the next run.
///
/// # Errors
/// When the directory or the file store fails.
pub async fn sweep(gateway: &Gateway) -> Result<bool, Problem> {
    let allowance = Allowance::new(gateway, RUN_CALLS, RUN_TIME);
    let maintained = maintain(gateway, &allowance).await;
    let left = erase_deleted(gateway, &allowance).await?;
    Ok(maintained? || left)
}

/// Removes expired rows, unreferenced objects, and the terms of erased memory. Returns whether there are more.
async fn maintain(gateway: &Gateway, allowance: &Allowance<'_>) -> Result<bool, Problem> {
    let now = gateway.clock.now();
    let shards = gateway.config.shards.len().max(1);
    let calls = SWEEP_CALLS * shards.min(SHARDS_PER_SWEEP) + FORGET_CALLS * shards;
    for pass in 0..MAINTENANCE_PASSES {
        if pass > 0 && allowance.calls.get() < ERASURE_CALLS + calls {
            return Ok(true);
        }
        allowance.spend(calls);
        let (collected, expired) = (gateway.files.collect(now).await, gateway.directory.expire(now).await);
        let merged = gateway.memories.drop_erased_terms().await;
        if !(collected? | expired? | merged?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Continues the erasure of deleted tenants, one step of each in turn, so that a large tenant does not delay the
/// others. Returns whether some are left that this run could not process.
async fn erase_deleted(gateway: &Gateway, allowance: &Allowance<'_>) -> Result<bool, Problem> {
    let now = gateway.clock.now();
    let deleted = gateway.directory.deleted_tenants(TENANTS_PER_RUN).await?;
    let mut waiting: VecDeque<_> = deleted
        .into_iter()
        .map(|(tenant, since)| (Erasure::new(tenant, None), now.since(since) >= id_held()))
        .collect();
    // Another tenant is the first of each run: it may need more room than is left for the others.
    let count = waiting.len().max(1) as u64;
    waiting.rotate_left(usize::try_from(now.0 / 60_000 % count).unwrap_or_default());
    let mut is_left = false;
    while let Some((mut erasure, is_last)) = waiting.pop_front() {
        if allowance.is_used_up() {
            return Ok(true);
        }
        match erasure.step_of_deleted(gateway, allowance, is_last).await {
            Ok(Step::Done) => {}
            Ok(Step::More) => waiting.push_back((erasure, is_last)),
            Ok(Step::NoRoom) => is_left = true,
            // One failed shard must not block the tenants of the others.
            Err(problem) => log_failure(gateway, &erasure.tenant, &problem),
        }
    }
    Ok(is_left)
}

fn log_failure(gateway: &Gateway, tenant: &TenantId, problem: &Problem) {
    let cause = problem.to_string();
    gateway.log.error(&json!({ "event": "erasure.failed", "tenant": tenant, "cause": cause }));
}

/// What a request or a run may still do.
struct Allowance<'a> {
    calls: Cell<usize>,
    has_begun: Cell<bool>,
    clock: &'a dyn Clock,
    until: Timestamp,
}

impl<'a> Allowance<'a> {
    fn new(gateway: &'a Gateway, calls: usize, time: Duration) -> Self {
        let clock = gateway.clock.as_ref();
        Self { calls: Cell::new(calls), has_begun: Cell::new(false), clock, until: clock.now() + time }
    }

    fn spend(&self, calls: usize) {
        self.calls.set(self.calls.get().saturating_sub(calls));
    }

    /// Takes the calls of a step. Returns `false` if they are too many, unless it is the first step: no later run would have
    /// more room.
    fn take(&self, calls: usize) -> bool {
        let is_first = !self.has_begun.replace(true);
        let is_allowed = is_first || calls <= self.calls.get();
        if is_allowed {
            self.spend(calls);
        }
        is_allowed
    }

    fn is_late(&self) -> bool {
        self.clock.now() >= self.until
    }

    /// Returns whether there is no room for another step.
    fn is_used_up(&self) -> bool {
        self.calls.get() <= STEP_CALLS || self.is_late()
    }
}

/// What a step has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing but sessions that failed.
    Done,
    /// Work for further steps.
    More,
    /// Work for which this request or run has no room.
    NoRoom,
}

/// The erasure of a tenant, or of one of its users, in a request or a run.
struct Erasure {
    tenant: TenantId,
    user: Option<UserId>,
    /// The last session of the list that was tried: sessions that fail are not tried again, so that they do not keep
    /// the allowance from others.
    tried: Option<(Timestamp, SessionId)>,
    /// Whether all sessions of the list were tried.
    tried_all: bool,
    /// Number of sessions that could not be erased. They stay in the list for the next request or run.
    failed: usize,
}

impl Erasure {
    fn new(tenant: TenantId, user: Option<UserId>) -> Self {
        Self { tenant, user, tried: None, tried_all: false, failed: 0 }
    }

    /// Takes steps until the allowance is used up. Returns whether nothing is left but sessions that failed.
    async fn steps(&mut self, gateway: &Gateway, allowance: &Allowance<'_>) -> Result<bool, Problem> {
        while !allowance.is_used_up() {
            match self.step(gateway, allowance).await? {
                Step::Done => return Ok(true),
                Step::More => {}
                Step::NoRoom => break,
            }
        }
        Ok(false)
    }

    /// Erases some of a deleted tenant, and at the end its ledger and inbox, and the tenant itself if `is_last`.
    async fn step_of_deleted(
        &mut self,
        gateway: &Gateway,
        allowance: &Allowance<'_>,
        is_last: bool,
    ) -> Result<Step, Problem> {
        let step = self.step(gateway, allowance).await?;
        if step == Step::Done && self.failed == 0 {
            // After the sessions, whose last reports it counts.
            gateway.ledger.erase(&self.tenant).await?;
            gateway.inbox.erase(&self.tenant).await?;
            if is_last {
                allowance.spend(PURGE_CALLS + 2 * gateway.config.shards.len());
                gateway.agents.store().erase(&self.tenant).await?;
                gateway.agents.forget(&self.tenant);
                gateway.secrets.erase(&self.tenant).await?;
                gateway.agents.mcp().erase_consent(&self.tenant, None).await?;
                gateway.directory.purge_tenant(&self.tenant).await?;
            }
        }
        Ok(step)
    }

    /// Erases some sessions, and memory and files if there is room for their calls.
    async fn step(&mut self, gateway: &Gateway, allowance: &Allowance<'_>) -> Result<Step, Problem> {
        let shards = gateway.directory.shard_count(&self.tenant).await?;
        let calls = STEP_CALLS + SHARD_CALLS * shards.saturating_sub(1);
        if !self.tried_all {
            // If memory and files take all that is left, they have to wait until there are no sessions.
            let left = allowance.calls.get();
            let limit = if left > calls { left - calls } else { left };
            self.erase_sessions(gateway, allowance, limit).await?;
            if !self.tried_all && allowance.calls.get() < calls {
                return Ok(Step::More);
            }
        }
        if !allowance.take(calls) {
            return Ok(Step::NoRoom);
        }
        // Also while sessions are left, which can take hours. The last step follows the last session, because a
        // running session may still write.
        let (tenant, user) = (&self.tenant, self.user.as_ref());
        if let Some(user) = user {
            gateway.agents.mcp().erase_consent(tenant, Some(user)).await?;
        }
        let no_memory = gateway.memories.erase(tenant, user).await?;
        let no_files = match user {
            Some(user) => gateway.files.erase_user(tenant, None, user).await?,
            None => gateway.files.erase(tenant).await?,
        };
        Ok(if self.tried_all && no_memory && no_files { Step::Done } else { Step::More })
    }

    /// Erases the next sessions of the list. Each session's object removes its entry.
    async fn erase_sessions(
        &mut self,
        gateway: &Gateway,
        allowance: &Allowance<'_>,
        limit: usize,
    ) -> Result<(), Problem> {
        let limit = SESSIONS_PER_STEP.min(limit);
        let before = self.tried.as_ref().map(|(at, id)| (*at, id));
        let (tenant, user) = (&self.tenant, self.user.as_ref());
        let page = gateway.directory.sessions(SessionKinds::All, tenant, user, None, before, limit).await?;
        let (is_last, end) = (page.len() < limit, page.last().map(|last| (last.created_at, last.id.clone())));
        let erased = stream::iter(page)
            .map(|entry| async move {
                if allowance.is_late() {
                    return None;
                }
                allowance.spend(1);
                Some(erase_session(gateway, tenant, &entry.id).await)
            })
            .buffer_unordered(CONCURRENT);
        let (mut failed, mut skipped) = (0, false);
        erased
            .for_each(|erased| {
                failed += usize::from(erased == Some(false));
                skipped |= erased.is_none();
                std::future::ready(())
            })
            .await;
        self.failed += failed;
        if !skipped {
            self.tried = end.or(self.tried.take());
            self.tried_all = is_last;
        }
        Ok(())
    }
}

/// Erases a session. Returns whether it succeeded.
async fn erase_session(gateway: &Gateway, tenant: &TenantId, session: &SessionId) -> bool {
    let Err(error) = gateway.eraser.erase(tenant, session).await else { return true };
    gateway.log.error(&json!({
        "event": "erasure.session_failed", "tenant": tenant, "session": session, "cause": error.to_string(),
    }));
    false
}
