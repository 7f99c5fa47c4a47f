//! A hook.

use edge_harness::agent::{
    ActDecision, Hook, RuntimeContext,
    hook::{HookEvent, PreActing},
};

/// Denies the tool `dice` before 06:00 UTC.
pub struct Curfew;

#[async_trait::async_trait(?Send)]
impl Hook for Curfew {
    fn name(&self) -> &'static str {
        "curfew"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreActing]
    }

    async fn pre_acting(&self, event: &mut PreActing<'_>, cx: &RuntimeContext) -> ActDecision {
        let hour = cx.clock.now().0 / 3_600_000 % 24;
        match event.spec.map(|spec| spec.name.as_str()) {
            Some("dice") if hour < 6 => ActDecision::Deny("no games before 06:00 UTC".into()),
            _ => ActDecision::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Curfew;
    use crate::dice::Dice;
    use edge_harness::testkit::TestSession;
    use std::time::Duration;

    #[test]
    fn denies_dice_at_night() {
        let session = TestSession::new(|agent| agent.tool(Dice).hook(Curfew));
        let roll = "/tool dice {\"sides\": 6, \"count\": 3}";
        assert!(session.ask(roll).contains("no games before 06:00 UTC"));
        session.clock.advance(Duration::from_hours(6));
        assert!(session.ask(roll).starts_with("dice → ["));
    }
}
