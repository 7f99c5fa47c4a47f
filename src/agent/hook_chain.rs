//! The hooks of an agent, in the order in which they run.

use super::{Hook, hook::HookEvent};
use std::rc::Rc;

/// The hooks of an agent, one list per event.
#[derive(Default)]
pub struct HookChain {
    pub(super) lists: [Vec<Rc<dyn Hook>>; 7],
}

impl HookChain {
    /// Returns the hooks of an event, in order.
    pub fn at(&self, event: HookEvent) -> &[Rc<dyn Hook>] {
        &self.lists[event as usize]
    }
}
