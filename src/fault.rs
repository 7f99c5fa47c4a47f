//! Named defects of the core, which a test of the simulator switches on to see that it can fail.
//! Without the feature `faults` none exists: [`active`] is false at compile time.

/// Makes the list and [`Fault::ALL`] from one table.
macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// A defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault { $($(#[doc = $doc])+ $name,)* }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Fault] = &[$(Fault::$name,)*];
        }
    };
}

faults! {
    /// The end of a turn does not take its right to write.
    SkipSeal,
    /// The end of a turn leaves no record.
    NoEnd,
    /// The end of a turn leaves two records.
    TwoEnds,
    /// The end of a turn forgets its open calls.
    ForgetOpenCalls,
    /// What a hook drafted before it failed stays.
    KeepFailedSubStep,
    /// A turn that hits a bound says nothing.
    NoApology,
    /// A turn that hits its deadline goes on.
    IgnoreDeadline,
    /// A wave's last outcome is dropped.
    DropToolMessage,
    /// A wave's outcomes are stored in reverse.
    ReorderWave,
    /// Calls that conflict share a wave.
    ShareWaves,
    /// What succeeded runs again.
    IgnoreIdempotency,
    /// A tool that failed for good stays open.
    ReopenTools,
    /// A call writes after it is over.
    LateWrites,
    /// A tool runs as long as it likes.
    NoToolTimeout,
    /// A tool begins though its turn was ended.
    BeginLate,
    /// A call that was cut off runs again, idempotent or not.
    RerunBegun,
    /// A call of which nobody knows is said not to have run.
    DenyUnknown,
    /// Calls over the budget run.
    IgnoreCallBudget,
    /// Steps are not counted.
    UncountedSteps,
    /// A restart keeps the epoch, and so what ran before it is not remembered.
    ForgetEpoch,
    /// A restart leaves no record, and text before it is not void.
    UnsaidRestart,
    /// Numbers of the log have gaps.
    SkipNumbers,
    /// Records that wait for a message to end are dropped.
    DropDeferred,
    /// Whoever comes back in the middle of a message reads its start again.
    RepeatText,
    /// A message that waited is dropped when its turn comes.
    LoseQueued,
    /// An abort leaves the work running.
    AbortGoesOn,
    /// A message does not remember its Idempotency-Key.
    ForgetKey,
    /// A session opens to everybody.
    OpenToAll,
    /// A large answer is pointed to and not stored.
    DeadReference,
    /// The context is cut between a call and its result.
    SplitPairs,
    /// What the user asked last leaves the context.
    DropAsked,
    /// Nothing stands for what leaves the context.
    ForgetSummary,
    /// Messages leave the context before they can be found.
    DropUnseen,
    /// A call is decided on though its turn is over.
    DecideLate,
    /// A second decision takes the place of the first.
    DecideTwice,
    /// What arguments a decision was meant for is not looked at.
    ApproveStale,
    /// What somebody approved with other arguments runs with the model's.
    ForgetArgs,
    /// What somebody declined runs.
    RunDeclined,
    /// What somebody is to be asked about runs.
    RunUnasked,
    /// What a rule forbids runs.
    RunForbidden,
    /// Of a step of which a call waits, those that nobody is asked about run.
    RunBeforeAll,
    /// A turn goes on as soon as one of its calls is decided.
    GoOnEarly,
    /// A turn that waits is taken for one whose machine went away.
    RestartWaiting,
    /// A turn's time goes on while it waits.
    TimeRunsWhileWaiting,
    /// What waits may wait for ever.
    ForgetExpiry,
    /// A subagent goes by none of the rules of the session that sends it out.
    FreeSubagents,
    /// An errand that is told twice is done twice.
    RepeatErrand,
    /// A subagent sends out others.
    NestSubagents,
    /// A report that was not heard is not told again.
    LoseReport,
    /// A subagent that is called back goes on.
    ForgetRecall,
    /// What subagents have done stays when the session that sent them out is erased.
    LeaveSubagents,
}

/// Whether the core has this defect now.
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

    /// Whether the core has this defect now, on this thread.
    pub fn active(fault: Fault) -> bool {
        ACTIVE.get() == Some(fault)
    }

    /// Gives the core a defect, on this thread; `None` takes it back.
    pub fn activate(fault: Option<Fault>) {
        ACTIVE.set(fault);
    }
}
