//! Named defects of the core. Tests of the simulator activate them to verify that it detects them. Without
//! the feature `faults`, [`active`] is `false` at compile time.

/// Defines [`Fault`] and [`Fault::ALL`] from one table.
macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// A defect of the core.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault { $($(#[doc = $doc])+ $name,)* }

        impl Fault {
            /// All defects.
            pub const ALL: &'static [Fault] = &[$(Fault::$name,)*];
        }
    };
}

faults! {
    /// Sealing a turn leaves its permit valid.
    SkipSeal,
    /// Sealing a turn writes no terminal record.
    NoEnd,
    /// Sealing a turn writes two terminal records.
    TwoEnds,
    /// Sealing a turn does not close its open calls.
    ForgetOpenCalls,
    /// The changes of a failed hook are committed.
    KeepFailedSubStep,
    /// A turn that reaches a limit ends without a reply.
    NoLimitReply,
    /// A turn continues after its deadline.
    IgnoreDeadline,
    /// The last outcome of a wave is dropped.
    DropToolMessage,
    /// The outcomes of a wave are stored in reverse order.
    ReorderWave,
    /// Conflicting calls run in the same wave.
    ShareWaves,
    /// An idempotent call runs again after it succeeded.
    IgnoreIdempotency,
    /// A tool that failed permanently remains available.
    KeepFailedTools,
    /// A call writes after it has ended.
    LateWrites,
    /// Tools have no time limit.
    NoToolTimeout,
    /// A tool starts after its turn has ended.
    StartLate,
    /// Recovery reruns interrupted calls that are not idempotent.
    RerunStarted,
    /// A call with an unknown outcome is reported as not run.
    DenyUnknown,
    /// Calls beyond the budget run.
    IgnoreCallBudget,
    /// Steps are not counted.
    UncountedSteps,
    /// A restart keeps the epoch, so that earlier calls of the turn are not restored.
    ForgetEpoch,
    /// A restart writes no record, so that text streamed before it stays valid.
    UnrecordedRestart,
    /// The sequence numbers of the log have gaps.
    SkipNumbers,
    /// Records deferred until the end of a message are dropped.
    DropDeferred,
    /// A reader that reconnects within a message gets its start again.
    RepeatText,
    /// A queued message is lost when its turn starts.
    LoseQueued,
    /// An abort does not stop the running work.
    AbortKeepsRunning,
    /// The Idempotency-Key of a message is not stored.
    ForgetKey,
    /// A session is open to every user.
    OpenToAll,
    /// A large output is referenced but not stored.
    DeadReference,
    /// A cut separates a call from its result.
    SplitPairs,
    /// The user's last message is hidden.
    DropUserMessage,
    /// Hidden messages have no summary.
    ForgetSummary,
    /// Messages are hidden before they are indexed.
    DropUnseen,
    /// A call is decided after its turn has ended.
    DecideLate,
    /// A second decision replaces the first.
    DecideTwice,
    /// The arguments hash of a decision is not checked.
    ApproveStale,
    /// A call approved with edited arguments runs with the original ones.
    ForgetArgs,
    /// A declined call runs.
    RunDeclined,
    /// A call that needs approval runs without it.
    RunUnasked,
    /// A call forbidden by a rule runs.
    RunForbidden,
    /// Calls that need no approval run before the suspended calls of their step are resolved.
    RunBeforeAll,
    /// A turn resumes after the first of several suspended calls is resolved.
    ResumeEarly,
    /// A waiting turn is recovered as if it had been evicted.
    RestartWaiting,
    /// The deadline is not extended by the time a turn waits.
    TimeRunsWhileWaiting,
    /// Suspensions never expire.
    ForgetExpiry,
    /// A child does not apply its parent's permission rules.
    FreeSubagents,
    /// A task that is spawned twice runs twice.
    RepeatTask,
    /// A subagent spawns subagents.
    NestSubagents,
    /// An unacknowledged status is not sent again.
    LoseStatus,
    /// A canceled child continues.
    KeepCanceledChild,
    /// Erasing the parent's session leaves the children's sessions.
    LeaveSubagents,
}

/// Returns whether this defect is active.
#[cfg(not(feature = "faults"))]
#[inline]
pub const fn active(_: Fault) -> bool {
    false
}

#[cfg(feature = "faults")]
pub use switch::{activate, active};

#[cfg(feature = "faults")]
mod switch {
    use super::Fault;
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Returns whether this defect is active on this thread.
    pub fn active(fault: Fault) -> bool {
        ACTIVE.get() == Some(fault)
    }

    /// Activates a defect on this thread; `None` deactivates it.
    pub fn activate(fault: Option<Fault>) {
        ACTIVE.set(fault);
    }
}
