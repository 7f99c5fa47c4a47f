//! What a turn has done so far: made when the turn (re)starts, dropped when it ends.
//!
//! What must survive the machine is in the log and in `TurnState`; this is folded from them.

use super::Toolkit;
use crate::turn::replay::{ReplayControl, ReplayKey, Replayed};
use crate::types::{EventKind, Source, ToolOutcome};
use serde_json::Value;
use std::{
    cell::{Ref, RefCell},
    collections::BTreeMap,
};

/// All mutable state of one turn in one machine.
#[derive(Default)]
pub struct RuntimeState {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    replay: ReplayControl,
    started: Vec<(String, String, Value)>,
    sources: Vec<Source>,
    reflection: Option<String>,
    context: Vec<String>,
    prompt_render_hash: Option<String>,
    sub_steps_failed: Vec<String>,
    outcomes: BTreeMap<String, u32>,
    model: Option<String>,
}

impl RuntimeState {
    /// Takes note of a record of this turn, new or read back.
    pub fn observe(&self, toolkit: &Toolkit, kind: &EventKind) {
        let inner = &mut *self.inner.borrow_mut();
        match kind {
            EventKind::ToolStarted { call_id, name, args, .. } => {
                inner.started.push((call_id.clone(), name.clone(), args.clone()));
            }
            EventKind::ToolCompleted { call_id, outcome, sources, .. } => {
                let Some((call_id, name, args)) = inner.started.iter().find(|(id, ..)| id == call_id) else {
                    return;
                };
                let spec = toolkit.get(name).map(|(spec, _)| spec);
                let call = Replayed {
                    key: ReplayKey::of(name, args),
                    call_id,
                    name,
                    idempotent: spec.is_some_and(|spec| spec.idempotent),
                    reads: spec.is_some_and(|spec| spec.effect.is_read()),
                };
                inner.replay.completed(&call, outcome);
                *inner.outcomes.entry(outcome.name().to_owned()).or_default() += 1;
                if matches!(outcome, ToolOutcome::Result { .. } | ToolOutcome::Artifact { .. }) {
                    for source in sources {
                        if !inner.sources.contains(source) {
                            inner.sources.push(source.clone());
                        }
                    }
                }
            }
            EventKind::ReflectionCompleted { note, stub: false, .. } => inner.reflection = Some(note.clone()),
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

    /// Notes that a part of the turn failed which the turn can do without.
    pub(super) fn sub_step_failed(&self, step: &str) {
        self.inner.borrow_mut().sub_steps_failed.push(step.to_owned());
    }

    /// Notes what a model call was made of.
    pub(super) fn rendered(&self, model: String, hash: String) {
        let inner = &mut *self.inner.borrow_mut();
        inner.model = Some(model);
        inner.prompt_render_hash = Some(hash);
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
        self.inner.borrow().prompt_render_hash.clone()
    }

    /// What failed without failing the turn.
    pub fn sub_steps_failed(&self) -> Vec<String> {
        self.inner.borrow().sub_steps_failed.clone()
    }

    /// What the agent thought last about its own work.
    pub fn reflection(&self) -> Option<String> {
        self.inner.borrow().reflection.clone()
    }
}
