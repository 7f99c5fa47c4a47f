//! The volatile state of a turn: created when the turn starts or restarts, dropped when it ends.
//!
//! It is rebuilt by applying the turn's records. State that must survive an eviction is in the log and in
//! `TurnState`.

use super::ToolFilter;
use crate::runs::Run;
use crate::turn::replay::{ReplayCall, ReplayControl, ReplayKey};
use crate::types::{CallId, EventKind, Gauge, Message, Source, ToolOutcome, ToolSpec, Tools, TurnId};
use futures::future::{LocalBoxFuture, Shared};
use sha2::{Digest, Sha256};
use std::{
    cell::{Cell, Ref, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Maximum number of sources kept for one turn.
const MAX_SOURCES: usize = 200;

/// The mutable state of one start of a turn.
#[derive(Default)]
pub struct RuntimeState {
    inner: RefCell<Inner>,
    search_work: Rc<Cell<u64>>,
    empty_waits: Rc<Cell<u32>>,
}

#[derive(Default)]
struct Inner {
    replay: ReplayControl,
    /// Calls without an outcome: call id, tool name and replay key.
    open: Vec<(CallId, String, ReplayKey)>,
    sources: Vec<Source>,
    reflection: Option<String>,
    context: Vec<String>,
    /// Which tools the session has now, according to hooks.
    filters: Rc<[ToolFilter]>,
    /// The offered tools, cached for the mode they were selected for.
    tools: Option<(Option<String>, Tools)>,
    /// The task list at the start of the turn, rendered for the prompt.
    tasks: Option<String>,
    /// The system prompt and the hash of the tools of the last model call.
    rendered: Option<(String, [u8; 32])>,
    sub_steps_failed: Vec<(String, String)>,
    /// Ids of calls that were passed to their tool.
    begun: Vec<CallId>,
    /// The user's message, as changed by hooks.
    user_message: Option<Rc<Message>>,
    restored: bool,
    outcomes: BTreeMap<String, u32>,
    model: Option<String>,
    /// The model that has taken over from the session's.
    fallback: Option<String>,
    /// Ids of all calls of the turn.
    call_ids: Vec<CallId>,
    /// Names of all tools that the turn has called.
    called: BTreeSet<String>,
    /// Calibration of the token estimate that is not stored yet.
    gauge: Option<Gauge>,
    prefetch: Option<Prefetch>,
    /// The run that the session does, as of this record.
    run: Option<(u64, Rc<Run>)>,
    /// Whether the provider has refused a request with files.
    media_refused: bool,
    /// The background tasks that the last request has shown to the model.
    background: Vec<TurnId>,
}

/// The reads that hooks started when the turn's message arrived.
pub(super) type Prefetch = Shared<LocalBoxFuture<'static, ()>>;

impl RuntimeState {
    /// Returns the counter of the work of the turn's searches.
    pub(super) fn search_work(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.search_work)
    }

    /// Returns the counter of the turn's waits in a row in which no background task ended.
    pub(super) fn empty_waits(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.empty_waits)
    }

    /// Returns the run that the session does, if it was read as of this record.
    pub(super) fn run(&self, seq: u64) -> Option<Rc<Run>> {
        let inner = self.inner.borrow();
        inner.run.as_ref().filter(|(read, _)| *read == seq).map(|(_, run)| Rc::clone(run))
    }

    /// Keeps the run as of this record.
    pub(super) fn set_run(&self, seq: u64, run: &Rc<Run>) {
        self.inner.borrow_mut().run = Some((seq, Rc::clone(run)));
    }

    /// Keeps which background tasks the request that is being prepared shows to the model.
    pub(super) fn show_background(&self, shown: Vec<TurnId>) {
        self.inner.borrow_mut().background = shown;
    }

    /// Returns the background tasks that the last request has shown to the model.
    pub(super) fn shown_background(&self) -> Vec<TurnId> {
        self.inner.borrow().background.clone()
    }

    /// Keeps the reads that hooks have started.
    pub(super) fn set_prefetch(&self, prefetch: Option<Prefetch>) {
        self.inner.borrow_mut().prefetch = prefetch;
    }

    /// Waits for the reads that hooks have started.
    pub(super) async fn await_prefetch(&self) {
        let prefetch = self.inner.borrow_mut().prefetch.take();
        if let Some(prefetch) = prefetch {
            prefetch.await;
        }
    }

    /// Applies a record of this turn, whether it is new or read back from the log.
    /// `spec` finds a tool by name.
    pub fn observe<'a>(&self, spec: impl FnOnce(&str) -> Option<&'a ToolSpec>, kind: &EventKind) {
        let inner = &mut *self.inner.borrow_mut();
        match kind {
            EventKind::ToolStarted { call_id, name, args, .. } => {
                inner.call_ids.push(call_id.clone());
                inner.called.insert(name.clone());
                inner.open.push((call_id.clone(), name.clone(), ReplayKey::of(name, args)));
            }
            EventKind::ToolCompleted { call_id, outcome, sources, ran_with, .. } => {
                let Some(place) = inner.open.iter().position(|(id, ..)| id == call_id) else { return };
                let (call_id, name, key) = inner.open.swap_remove(place);
                inner.begun.retain(|begun| *begun != call_id);
                let key = ran_with.as_ref().map_or(key, |args| ReplayKey::of(&name, args));
                let spec = spec(&name);
                let call = ReplayCall {
                    key,
                    call_id,
                    name: &name,
                    idempotent: spec.is_some_and(ToolSpec::skips_repeats),
                    reads: spec.is_some_and(|spec| spec.effect.is_read()),
                };
                inner.replay.record(&call, outcome);
                *inner.outcomes.entry(outcome.name().to_owned()).or_default() += 1;
                if matches!(outcome, ToolOutcome::Result { .. } | ToolOutcome::Artifact { .. }) {
                    for source in sources {
                        if inner.sources.len() < MAX_SOURCES && !inner.sources.contains(source) {
                            inner.sources.push(source.clone());
                        }
                    }
                }
            }
            EventKind::TurnReflected { note, stub: false, .. } => inner.reflection = Some(note.clone()),
            EventKind::ModelFallback { model, .. } => inner.fallback = Some(model.clone()),
            _ => {}
        }
    }

    /// Returns whether the model has called a tool in this turn.
    pub fn has_called(&self, tool: &str) -> bool {
        self.inner.borrow().called.contains(tool)
    }

    /// Returns the outcomes so far, for deciding whether a call may run again.
    pub fn replay(&self) -> Ref<'_, ReplayControl> {
        Ref::map(self.inner.borrow(), |inner| &inner.replay)
    }

    /// Returns the sources of the results so far, without duplicates, in order of arrival.
    pub fn sources(&self) -> Vec<Source> {
        self.inner.borrow().sources.clone()
    }

    /// Returns the texts that context sources loaded for this turn.
    pub fn context(&self) -> Ref<'_, Vec<String>> {
        Ref::map(self.inner.borrow(), |inner| &inner.context)
    }

    pub(super) fn add_context(&self, text: Option<String>) {
        self.inner.borrow_mut().context.extend(text);
    }

    /// Returns the task list at the start of the turn, rendered for the prompt.
    pub(super) fn tasks(&self) -> Option<String> {
        self.inner.borrow().tasks.clone()
    }

    pub(super) fn show_tasks(&self, text: String) {
        self.inner.borrow_mut().tasks = Some(text);
    }

    /// Lists a non-fatal failure of part `step`. Only the first failure of each part is listed.
    pub fn sub_step_failed(&self, step: &str, reason: &str) {
        let failed = &mut self.inner.borrow_mut().sub_steps_failed;
        if !failed.iter().any(|(known, _)| known == step) {
            failed.push((step.to_owned(), reason.to_owned()));
        }
    }

    /// Leaves out the contents of files from the further requests of the turn.
    pub(super) fn refuse_media(&self) {
        self.inner.borrow_mut().media_refused = true;
    }

    /// Returns whether the provider has refused a request with files.
    pub(super) fn is_media_refused(&self) -> bool {
        self.inner.borrow().media_refused
    }

    /// Sets which tools the session has now: those that all filters keep.
    pub(super) fn set_filters(&self, filters: Vec<ToolFilter>) {
        let inner = &mut *self.inner.borrow_mut();
        if *inner.filters != *filters {
            inner.filters = filters.into();
            inner.tools = None;
        }
    }

    /// Returns whether all filters keep a tool.
    pub(super) fn has_tool(&self, spec: &ToolSpec) -> bool {
        self.inner.borrow().filters.iter().all(|filter| filter.keeps(spec))
    }

    /// Returns the tools offered to the model, calling `choose` only when the mode or a filter has changed.
    pub(super) fn tools(&self, mode: Option<&str>, choose: impl FnOnce() -> Tools) -> Tools {
        if let Some((own, tools)) = &self.inner.borrow().tools
            && own.as_deref() == mode
        {
            return Rc::clone(tools);
        }
        let tools = choose();
        self.inner.borrow_mut().tools = Some((mode.map(str::to_owned), Rc::clone(&tools)));
        tools
    }

    /// Returns whether these are the tools that [`RuntimeState::tools`] chose.
    pub(super) fn has_chosen(&self, tools: &Tools) -> bool {
        self.inner.borrow().tools.as_ref().is_some_and(|(_, chosen)| Rc::ptr_eq(chosen, tools))
    }

    /// Records the model and the stable part of the prompt of a model call.
    pub(super) fn rendered(&self, model: &str, system: &str, tools: [u8; 32]) {
        let inner = &mut *self.inner.borrow_mut();
        inner.model = Some(model.to_owned());
        // Hashed when the turn ends, to keep it off the path to the first token.
        inner.rendered = Some((system.to_owned(), tools));
    }

    /// Returns the model that has taken over from the session's.
    pub(super) fn fallback(&self) -> Option<String> {
        self.inner.borrow().fallback.clone()
    }

    /// Marks a call as passed to its tool: from here on it may have had an effect.
    pub(super) fn begin(&self, call_id: &CallId) {
        self.inner.borrow_mut().begun.push(call_id.to_owned());
    }

    /// Returns whether a call was passed to its tool since this start of the turn.
    pub(super) fn has_begun(&self, call_id: &CallId) -> bool {
        self.inner.borrow().begun.iter().any(|begun| begun == call_id)
    }

    /// Stores the user's message, as changed by hooks.
    pub(super) fn set_user_message(&self, message: &Rc<Message>) {
        self.inner.borrow_mut().user_message = Some(Rc::clone(message));
    }

    /// Returns the user's message, as changed by hooks.
    pub(super) fn user_message(&self) -> Option<Rc<Message>> {
        self.inner.borrow().user_message.clone()
    }

    /// Returns `true` on the first call: the turn's earlier records have not been applied yet.
    pub(super) fn take_needs_restore(&self) -> bool {
        !std::mem::replace(&mut self.inner.borrow_mut().restored, true)
    }

    /// Returns the ids of all calls of the turn.
    pub(super) fn call_ids(&self) -> Vec<CallId> {
        self.inner.borrow().call_ids.clone()
    }

    /// Stores a calibration of the token estimate, to be written with the next commit.
    pub(super) fn gauge(&self, gauge: Gauge) {
        self.inner.borrow_mut().gauge = Some(gauge);
    }

    /// Takes the calibration that is not stored yet.
    pub(super) fn take_gauge(&self) -> Option<Gauge> {
        self.inner.borrow_mut().gauge.take()
    }

    /// Returns the model of the last call, as `provider/model`.
    pub fn model(&self) -> Option<String> {
        self.inner.borrow().model.clone()
    }

    /// Returns the number of calls per outcome.
    pub fn outcomes(&self) -> BTreeMap<String, u32> {
        self.inner.borrow().outcomes.clone()
    }

    /// Returns the SHA-256 of the stable part of the last prompt, in hex.
    pub fn prompt_render_hash(&self) -> Option<String> {
        let inner = self.inner.borrow();
        inner.rendered.as_ref().map(|(system, tools)| render_hash(system, *tools))
    }

    /// Returns the non-fatal failures of the turn: the part and the reason.
    pub fn sub_steps_failed(&self) -> Vec<(String, String)> {
        self.inner.borrow().sub_steps_failed.clone()
    }

    /// Returns the note of the latest self-critique.
    pub fn reflection(&self) -> Option<String> {
        self.inner.borrow().reflection.clone()
    }
}

/// Returns the SHA-256 of the stable part of a prompt, in hex. It changes only with the instructions and the
/// tools.
fn render_hash(system: &str, tools: [u8; 32]) -> String {
    let hash = Sha256::new().chain_update(system).chain_update([0]).chain_update(tools).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
