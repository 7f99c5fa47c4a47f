//! The hooks of an agent, in the order in which they run.

use super::{Hook, RuntimeContext, hook::HookEvent};
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

    /// Asks the hooks which tools the session has now, before a request of this step or before a call.
    pub(super) async fn filter_tools(&self, step: Option<u32>, cx: &RuntimeContext) {
        let mut filters = Vec::new();
        for hook in self.at(HookEvent::PreReasoning) {
            if let Some(filter) = hook.tool_filter(step, cx) {
                filters.push(filter.await);
            }
        }
        cx.state.set_filters(filters);
    }
}
