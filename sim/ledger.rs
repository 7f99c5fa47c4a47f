//! What is not ours: the ledger of what tools really did and models were really asked, and the trace.

use super::{scenario::Scenario, sched::Sched};
use edge_harness::agent::CancelToken;
use edge_harness::platform::in_memory::InMemoryIndex;
use serde_json::Value;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which invariant of DESIGN.md, from 1.
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
    /// Tool and arguments: equal for equal calls.
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
    /// What was answered, where the call has waited for that.
    pub answer: Option<Value>,
    /// State keys whose write was accepted, and the moment.
    pub wrote: Vec<(String, u64)>,
}

/// One call of the model.
pub struct Ask {
    /// What the user said in this turn.
    pub said: String,
    pub step: usize,
    pub tools_off: bool,
    pub reflects: bool,
    /// Whether it is told that its last answer did not fit.
    pub repairs: bool,
    pub began: u64,
    pub at: u64,
    /// When nobody read it any more.
    pub left: Option<u64>,
    pub left_at: u64,
    /// Whether the whole answer was given.
    pub answered: bool,
}

/// Everything around the harness.
pub struct Ledger {
    pub sched: Rc<Sched>,
    pub scenario: Scenario,
    pub runs: RefCell<Vec<Run>>,
    pub asks: RefCell<Vec<Ask>>,
    /// Tries of the model so far, by turn and step.
    pub tries: RefCell<BTreeMap<(String, usize), u32>>,
    /// Where what was said is found again.
    pub index: Rc<InMemoryIndex>,
    /// Questions beside the conversation so far.
    pub one_shots: Cell<usize>,
    /// How often turns had to wait for a person.
    pub waits: Cell<u64>,
    /// How often a machine went away while a turn waited.
    pub restarts: Cell<u64>,
    /// How many subagents were sent out.
    pub spawned: Cell<u64>,
    /// Calls of one session to another so far.
    pub messages: Cell<usize>,
    /// What was found while it happened, and in the end.
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
            index: Rc::default(),
            one_shots: Cell::new(0),
            waits: Cell::new(0),
            restarts: Cell::new(0),
            spawned: Cell::new(0),
            messages: Cell::new(0),
            findings: RefCell::default(),
            moments: Cell::new(0),
            trace: traced.then(RefCell::default),
        })
    }

    /// A number for what happens now: what happens later gets a higher one.
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
