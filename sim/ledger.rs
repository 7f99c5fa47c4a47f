//! The ledger: the actual runs of tools and requests to models, and the trace.

use super::{scenario::Scenario, sched::Sched};
use edge_harness::agent::CancelToken;
use edge_harness::platform::in_memory::InMemoryIndex;
use edge_harness::ports::memory::CollectionKind;
use edge_harness::types::{CallId, Tools};
use serde_json::Value;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The number of the invariant; see `invariants`.
    pub invariant: u8,
    pub evidence: String,
}

/// One run of a tool.
pub struct Run {
    /// `tenant/session`.
    pub session: String,
    pub turn: String,
    pub call_id: String,
    pub tool: &'static str,
    /// Tool and arguments, equal for equal calls.
    pub key: String,
    pub touches: String,
    pub reads: bool,
    pub idempotent: bool,
    pub began: u64,
    pub at: u64,
    pub running: Rc<Cell<bool>>,
    pub over: CancelToken,
    /// The arguments.
    pub args: Value,
    /// The answer, if the call was suspended for one.
    pub answer: Option<Value>,
    /// State keys whose write was accepted, with the moment.
    pub wrote: Vec<(String, u64)>,
}

/// One call of the model.
pub struct Ask {
    /// The user's message of the turn.
    pub said: String,
    pub step: usize,
    /// Whether it was the model that takes over.
    pub is_fallback: bool,
    pub tools_off: bool,
    pub reflects: bool,
    /// Whether the model hangs instead of responding.
    pub hangs: bool,
    /// Whether the request reports that the last response did not match the schema.
    pub repairs: bool,
    pub began: u64,
    pub at: u64,
    /// The moment at which the core stopped reading the response.
    pub left: Option<u64>,
    pub left_at: u64,
    /// Whether the complete response was streamed.
    pub answered: bool,
}

/// A user's message that leaves the window although it is not in an index.
pub struct Unindexed {
    /// The session, by its number in the scenario.
    pub place: usize,
    /// What identifies the message, such as `⟨s0⟩ u1`.
    pub message: String,
    pub kind: CollectionKind,
    pub at: u64,
}

/// The environment of the core, which records everything that happens.
pub struct Ledger {
    pub sched: Rc<Sched>,
    pub scenario: Scenario,
    pub runs: RefCell<Vec<Run>>,
    pub asks: RefCell<Vec<Ask>>,
    /// Number of attempts so far, by turn, step and whether it was the model that takes over.
    pub tries: RefCell<BTreeMap<(String, usize, bool), u32>>,
    /// The tools of the last request, and their tokens.
    pub measured: RefCell<Option<(Tools, u64)>>,
    /// The memory index.
    pub index: Rc<InMemoryIndex>,
    /// The messages that left the window before they were in an index.
    pub unindexed: RefCell<Vec<Unindexed>>,
    /// Number of one-shot calls so far.
    pub one_shots: Cell<usize>,
    /// Number of times a turn waited for a person.
    pub waits: Cell<u64>,
    /// Number of evictions while a turn was waiting.
    pub restarts: Cell<u64>,
    /// Number of spawned subagents.
    pub spawned: Cell<u64>,
    /// The subagents whose task was canceled, as `tenant/session`, with the call that gave it and the moment.
    pub canceled: RefCell<Vec<(String, CallId, u64)>>,
    /// The background tasks whose results a request has shown.
    pub shown: RefCell<BTreeSet<String>>,
    /// Number of background tasks.
    pub tasks: Cell<u64>,
    /// Number of messages between sessions so far.
    pub messages: Cell<usize>,
    /// Time of the last write that any disk refused.
    pub refused_at: Cell<u64>,
    /// The findings, during the run and afterwards.
    pub findings: RefCell<Vec<Finding>>,
    moments: Cell<u64>,
    trace: Option<RefCell<Vec<String>>>,
}

impl Ledger {
    pub fn new(sched: Rc<Sched>, scenario: Scenario, traced: bool) -> Rc<Self> {
        Rc::new(Self {
            sched,
            scenario,
            runs: RefCell::default(),
            asks: RefCell::default(),
            tries: RefCell::default(),
            measured: RefCell::default(),
            index: Rc::default(),
            unindexed: RefCell::default(),
            one_shots: Cell::new(0),
            waits: Cell::new(0),
            restarts: Cell::new(0),
            spawned: Cell::new(0),
            canceled: RefCell::default(),
            shown: RefCell::default(),
            tasks: Cell::new(0),
            messages: Cell::new(0),
            refused_at: Cell::new(0),
            findings: RefCell::default(),
            moments: Cell::new(0),
            trace: traced.then(RefCell::default),
        })
    }

    /// Returns a number that increases with every call, to order events.
    pub fn moment(&self) -> u64 {
        self.moments.set(self.moments.get() + 1);
        self.moments.get()
    }

    /// Adds a line to the trace.
    pub fn say(&self, actor: &str, what: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let ms = self.sched.now() - super::sched::START;
            trace.borrow_mut().push(format!("{ms:>7} ms  {actor:<12} {}", what()));
        }
    }

    pub fn find(&self, invariant: u8, evidence: impl Into<String>) {
        let evidence = evidence.into();
        self.say("FINDING", || format!("{invariant}: {evidence}"));
        self.findings.borrow_mut().push(Finding { invariant, evidence });
    }

    pub fn trace(&self) -> Vec<String> {
        self.trace.as_ref().map(|trace| trace.borrow().clone()).unwrap_or_default()
    }
}
