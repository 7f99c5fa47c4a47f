//! What a turn has done so far: made when the turn (re)starts, dropped when it ends.
//!
//! What must survive the machine is in the log and in `TurnState`; this is folded from them.

use super::{Toolkit, preparer};
use crate::turn::replay::{ReplayControl, ReplayKey, Replayed};
use crate::types::{EventKind, Gauge, Message, ModelRequest, Source, ToolOutcome, ToolSpec};
use std::{
    cell::{Ref, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

/// Most sources that a turn remembers.
const MAX_SOURCES: usize = 200;

/// All mutable state of one turn in one machine.
#[derive(Default)]
pub struct RuntimeState {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    replay: ReplayControl,
    /// Calls that have no outcome yet: their id, tool and name for replay.
    open: Vec<(String, String, ReplayKey)>,
    sources: Vec<Source>,
    reflection: Option<String>,
    context: Vec<String>,
    /// And for which mode.
    tools: Option<(Option<String>, Rc<[ToolSpec]>)>,
    /// What the agent has set itself to do, as it stood when the turn started; for its prompts.
    tasks: Option<String>,
    rendered: Option<(String, Rc<[ToolSpec]>)>,
    sub_steps_failed: Vec<(String, String)>,
    /// Calls that were handed to their tool.
    begun: Vec<String>,
    /// What the user said, as the model sees it.
    said: Option<Rc<Message>>,
    remembered: bool,
    outcomes: BTreeMap<String, u32>,
    model: Option<String>,
    /// All calls that were asked for.
    call_ids: Vec<String>,
    /// What was learned of how the model counts, and is not stored yet.
    gauge: Option<Gauge>,
}

impl RuntimeState {
    /// Takes note of a record of this turn, new or read back.
    pub fn observe(&self, toolkit: &Toolkit, kind: &EventKind) {
        let inner = &mut *self.inner.borrow_mut();
        match kind {
            EventKind::ToolStarted { call_id, name, args, .. } => {
                inner.call_ids.push(call_id.clone());
                inner.open.push((call_id.clone(), name.clone(), ReplayKey::of(name, args)));
            }
            EventKind::ToolCompleted { call_id, outcome, sources, ran_with, .. } => {
                let Some(place) = inner.open.iter().position(|(id, ..)| id == call_id) else { return };
                let (call_id, name, key) = inner.open.swap_remove(place);
                inner.begun.retain(|begun| *begun != call_id);
                let key = ran_with.as_ref().map_or(key, |args| ReplayKey::of(&name, args));
                let spec = toolkit.get(&name).map(|(spec, _)| spec);
                let call = Replayed {
                    key,
                    call_id: &call_id,
                    name: &name,
                    idempotent: spec.is_some_and(ToolSpec::skips_repeats),
                    reads: spec.is_some_and(|spec| spec.effect.is_read()),
                };
                inner.replay.completed(&call, outcome);
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
            _ => {}
        }
    }

    /// What became of calls so far.
    pub fn replay(&self) -> Ref<'_, ReplayControl> {
        Ref::map(self.inner.borrow(), |inner| &inner.replay)
    }

    /// The sources of the results so far, each once, in the order in which they came.
    pub fn sources(&self) -> Vec<Source> {
        self.inner.borrow().sources.clone()
    }

    /// Text that was loaded for this turn.
    pub fn context(&self) -> Ref<'_, Vec<String>> {
        Ref::map(self.inner.borrow(), |inner| &inner.context)
    }

    pub(super) fn add_context(&self, text: Option<String>) {
        self.inner.borrow_mut().context.extend(text);
    }

    /// What the agent had set itself to do when the turn started, if anything.
    pub(super) fn tasks(&self) -> Option<String> {
        self.inner.borrow().tasks.clone()
    }

    pub(super) fn show_tasks(&self, text: String) {
        self.inner.borrow_mut().tasks = Some(text);
    }

    /// Notes that a part of the turn failed which the turn can do without: once, however often it does.
    pub fn sub_step_failed(&self, step: &str, reason: &str) {
        let failed = &mut self.inner.borrow_mut().sub_steps_failed;
        if !failed.iter().any(|(known, _)| known == step) {
            failed.push((step.to_owned(), reason.to_owned()));
        }
    }

    /// The tools that this turn is offered: the same in each of its steps in one mode.
    pub(super) fn tools(
        &self,
        mode: Option<&str>,
        choose: impl FnOnce() -> Rc<[ToolSpec]>,
    ) -> Rc<[ToolSpec]> {
        let chosen = &mut self.inner.borrow_mut().tools;
        match chosen {
            Some((own, tools)) if own.as_deref() == mode => Rc::clone(tools),
            _ => Rc::clone(&chosen.insert((mode.map(str::to_owned), choose())).1),
        }
    }

    /// Notes what a model call is made of.
    pub(super) fn rendered(&self, model: &str, request: &ModelRequest) {
        let inner = &mut *self.inner.borrow_mut();
        inner.model = Some(model.to_owned());
        // Hashed at the turn's end: nothing waits for it before the first token.
        inner.rendered = Some((request.system.clone(), Rc::clone(&request.tools)));
    }

    /// Notes that a call was handed to its tool: from here on it may have had its effect.
    pub(super) fn begin(&self, call_id: &str) {
        self.inner.borrow_mut().begun.push(call_id.to_owned());
    }

    /// Whether a call was handed to its tool by this machine.
    pub(super) fn has_begun(&self, call_id: &str) -> bool {
        self.inner.borrow().begun.iter().any(|begun| begun == call_id)
    }

    /// Notes what the user said, as hooks left it.
    pub(super) fn set_user_message(&self, message: &Rc<Message>) {
        self.inner.borrow_mut().said = Some(Rc::clone(message));
    }

    /// What the user said, as the model saw it.
    pub(super) fn user_message(&self) -> Option<Rc<Message>> {
        self.inner.borrow().said.clone()
    }

    /// Whether the turn's own records are still to be folded; once.
    pub(super) fn take_needs_restore(&self) -> bool {
        !std::mem::replace(&mut self.inner.borrow_mut().remembered, true)
    }

    /// The calls that the turn has asked for.
    pub(super) fn call_ids(&self) -> Vec<String> {
        self.inner.borrow().call_ids.clone()
    }

    /// Notes what was learned of how the model counts: it is stored with what comes next.
    pub(super) fn gauge(&self, gauge: Gauge) {
        self.inner.borrow_mut().gauge = Some(gauge);
    }

    /// What was learned since this was asked last.
    pub(super) fn take_gauge(&self) -> Option<Gauge> {
        self.inner.borrow_mut().gauge.take()
    }

    /// The model that was called last, as `provider/model`.
    pub fn model(&self) -> Option<String> {
        self.inner.borrow().model.clone()
    }

    /// How many calls ended how.
    pub fn outcomes(&self) -> BTreeMap<String, u32> {
        self.inner.borrow().outcomes.clone()
    }

    /// SHA-256 of the stable part of the last prompt.
    pub fn prompt_render_hash(&self) -> Option<String> {
        let inner = self.inner.borrow();
        inner.rendered.as_ref().map(|(system, tools)| preparer::render_hash(system, tools))
    }

    /// What failed without failing the turn, and why.
    pub fn sub_steps_failed(&self) -> Vec<(String, String)> {
        self.inner.borrow().sub_steps_failed.clone()
    }

    /// What the agent thought last about its own work.
    pub fn reflection(&self) -> Option<String> {
        self.inner.borrow().reflection.clone()
    }
}
