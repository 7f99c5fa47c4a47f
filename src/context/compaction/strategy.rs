//! The compaction strategy, which replaces older messages by a summary.

use super::{
    CompactionSettings, Limits, Summarizer, prompt,
    reduce::{Reduction, View, reduce},
};
use crate::context::{ContextHandle, ContextStrategy, strategy::Fill};
use crate::ports::{session_store::Select, within};
use crate::session::{
    tokens,
    window::{ContextState, head},
};
use crate::types::{BoxError, CompactReason, EventKind, TurnId};
use async_trait::async_trait;
use std::time::Duration;
use std::{cell::RefCell, rc::Rc};

/// Share of a limit at which the context is compacted in the background after a turn, in percent.
const AFTER_TURN_PERCENT: u64 = 80;
/// Maximum time a turn waits for a summary that it needs to continue.
const REQUIRED_SUMMARY_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum time a turn waits for a summary that it can do without.
const OPTIONAL_SUMMARY_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time of a summary after a turn. Leaves time for the follow-ups that run before it.
const BACKGROUND_SUMMARY_TIMEOUT: Duration = Duration::from_secs(100);
/// Number of records after a failure during which compaction is not retried, unless a request would not fit.
const RETRY_AFTER_RECORDS: u64 = 20;

/// Replaces older messages of a long conversation by a summary, after extracting facts from them. The
/// messages stay in the log.
pub struct Compaction {
    settings: CompactionSettings,
    summarizer: Summarizer,
    /// Sessions that are being compacted after a turn.
    busy: Rc<RefCell<Vec<String>>>,
}

impl Compaction {
    /// Creates the strategy with this summarizer.
    pub fn new(settings: CompactionSettings, summarizer: Summarizer) -> Self {
        Self { settings, summarizer, busy: Rc::default() }
    }

    fn limits(&self, fill: &Fill) -> Limits {
        self.settings.limits(fill.window, fill.limit(), fill.fixed)
    }

    /// Returns why the context should be compacted, once it reaches `percent` of a limit.
    fn reason(&self, cx: &ContextHandle, percent: u64) -> Option<CompactReason> {
        let fill = cx.fill();
        self.limits(&fill).reason(cx.session().context().len(), fill.total(), percent)
    }

    /// Returns whether the last compaction failed or was interrupted recently.
    fn failed_recently(&self, cx: &ContextHandle) -> bool {
        let kinds = &["compaction.started", "compaction.failed", "compaction.completed"];
        let last = Select { kinds, newest_first: true, ..Select::default() };
        let last = cx.session().first(last).unwrap_or_default();
        last.is_some_and(|last| {
            let done = matches!(last.kind, EventKind::CompactionCompleted { .. });
            !done && cx.session().last_seq() < last.seq + RETRY_AFTER_RECORDS
        })
    }

    /// Compacts the context. `most` is the maximum size of a request in tokens, to be reached even without a
    /// summary. Returns whether the context became smaller.
    async fn compact(
        &self,
        cx: &ContextHandle,
        reason: CompactReason,
        most: Option<u64>,
    ) -> Result<bool, BoxError> {
        let (fill, messages, cut) = (cx.fill(), cx.messages(), cx.state().cut.clone());
        let shown: u64 = messages.iter().map(|(_, tokens)| tokens).sum();
        let head = fill.messages.saturating_sub(shown);
        // A turn started since then must keep its own messages, because it does not wait for this compaction.
        let other_turn = cx.running_turn().filter(|_| cx.time_left().is_none());
        let own = |turn: &TurnId| messages.iter().position(|(message, _)| message.turn == *turn);
        let open_from = other_turn.as_ref().and_then(own).unwrap_or(usize::MAX);
        let view = View { cut: &cut, messages: &messages, fixed: fill.fixed, head, open_from };
        let limits = self.limits(&fill);
        let Some(mut reduction) = reduce(&view, &limits, reason, most) else { return Ok(false) };
        cx.record(vec![EventKind::CompactionStarted { reason }])?;
        if reduction.dropped == 0 {
            return completed(cx, reason, fill.messages, reduction);
        }
        // Follow-ups read the log and run later in any case, so a required compaction does not wait long.
        let patience = summary_timeout(cx, most.is_some());
        let seen = cx.before_drop(reduction.cut.kept_from.saturating_sub(1));
        let seen = within(cx.clock.as_ref(), patience / 2, seen).await;
        let seen = seen.unwrap_or_else(|unfinished| Err(unfinished.into()));
        if let (Err(why), None) = (seen, most) {
            return failed(cx, why);
        }
        let leaving = messages.iter().take(reduction.before).map(|(message, _)| message);
        let model = self.settings.model.as_ref().unwrap_or(&cx.model);
        let earlier = cut.summary.as_deref();
        let summary = self.summarizer.summarize(model, earlier, leaving, limits.summary, &cx.spent);
        let summary = within(cx.clock.as_ref(), patience, summary).await;
        let summary = match summary.unwrap_or_else(|unfinished| Err(unfinished.into())) {
            Ok(summary) => summary,
            Err(why) if most.is_none() => return failed(cx, why),
            Err(_) => prompt::note_left_out(earlier, reduction.dropped),
        };
        reduction.cut.summary = Some(summary);
        completed(cx, reason, fill.messages, reduction)
    }
}

/// Returns how long a summary may take: a share of the time left to the waiting turn.
fn summary_timeout(cx: &ContextHandle, must: bool) -> Duration {
    match cx.time_left() {
        None => BACKGROUND_SUMMARY_TIMEOUT,
        Some(left) if must => (left / 3).min(REQUIRED_SUMMARY_TIMEOUT),
        Some(left) => (left / 4).min(OPTIONAL_SUMMARY_TIMEOUT),
    }
}

/// Records the result, unless another compaction completed first.
fn completed(
    cx: &ContextHandle,
    reason: CompactReason,
    before: u64,
    reduction: Reduction,
) -> Result<bool, BoxError> {
    let summary = reduction.cut.summary.as_deref();
    let shown = ContextState { cut: reduction.cut.clone(), ..cx.state().clone() };
    let head = head(&shown).map_or(0, |head| tokens::of_message(&head));
    let written = cx.cut(EventKind::CompactionCompleted {
        reason,
        dropped: reduction.dropped,
        summary_tokens: summary.map_or(0, tokens::of_text),
        tokens_before: before,
        tokens_after: reduction.after + head,
        cut: reduction.cut,
    })?;
    if !written {
        // Another compaction completed first, so the context is smaller already.
        cx.record(vec![EventKind::CompactionFailed { reason: "another compaction completed first".into() }])?;
    }
    Ok(true)
}

fn failed(cx: &ContextHandle, why: BoxError) -> Result<bool, BoxError> {
    cx.record(vec![EventKind::CompactionFailed { reason: why.to_string() }])?;
    Err(why)
}

#[async_trait(?Send)]
impl ContextStrategy for Compaction {
    fn name(&self) -> &'static str {
        "compaction"
    }

    async fn before_call(&self, cx: &ContextHandle) {
        let Some(reason) = self.reason(cx, 100) else { return };
        let fill = cx.fill();
        let most = (fill.total() > fill.limit()).then_some(fill.limit());
        // While the request fits, the turn neither waits for a running compaction nor retries a recent
        // failure.
        let waits = most.is_none() && (self.busy.borrow().contains(&key(cx)) || self.failed_recently(cx));
        if !waits {
            // A failure is recorded in the log; the turn continues.
            let _ = self.compact(cx, reason, most).await;
        }
    }

    async fn make_room(&self, cx: &ContextHandle, reason: CompactReason) -> Result<bool, BoxError> {
        let fill = cx.fill();
        let most = match reason {
            // The estimate was wrong by an unknown amount.
            CompactReason::Overflow => Some((fill.fixed + fill.messages / 2).min(fill.limit())),
            CompactReason::Messages | CompactReason::Tokens => Some(fill.limit()),
            CompactReason::Request => None,
        };
        self.compact(cx, reason, most).await
    }

    fn has_work(&self, cx: &ContextHandle) -> bool {
        self.reason(cx, AFTER_TURN_PERCENT).is_some() && !self.failed_recently(cx)
    }

    async fn after_turn(&self, cx: &ContextHandle) {
        let Some(reason) = self.reason(cx, AFTER_TURN_PERCENT).filter(|_| !self.failed_recently(cx)) else {
            return;
        };
        let Some(_busy) = Busy::with(&self.busy, key(cx)) else { return };
        // A failure is recorded in the log; the next turn tries again.
        let _ = self.compact(cx, reason, None).await;
    }
}

/// Returns a name of the session that is unique among all tenants.
fn key(cx: &ContextHandle) -> String {
    format!("{}/{}", cx.owner.tenant, cx.session().state().meta.id)
}

/// Marks a session as being compacted until it is dropped.
struct Busy(Rc<RefCell<Vec<String>>>, String);

impl Busy {
    fn with(all: &Rc<RefCell<Vec<String>>>, key: String) -> Option<Self> {
        if all.borrow().contains(&key) {
            return None;
        }
        all.borrow_mut().push(key.clone());
        Some(Self(Rc::clone(all), key))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.borrow_mut().retain(|key| *key != self.1);
    }
}
