//! A hook.

use edge_harness::agent::{
    ActDecision, Hook, RuntimeContext,
    hook::{HookEvent, PreActing},
};

const MOST_DICE: u64 = 10;

/// Denies calls of the tool `dice` for more than ten dice.
pub struct TableLimit;

#[async_trait::async_trait(?Send)]
impl Hook for TableLimit {
    fn name(&self) -> &'static str {
        "table_limit"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreActing]
    }

    async fn pre_acting(&self, event: &mut PreActing<'_>, _cx: &RuntimeContext) -> ActDecision {
        let count = event.call.args["count"].as_u64().unwrap_or_default();
        if event.call.name == "dice" && count > MOST_DICE {
            return ActDecision::Deny(format!("this table allows at most {MOST_DICE} dice"));
        }
        ActDecision::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::TableLimit;
    use crate::dice::Dice;
    use edge_harness::testkit::TestSession;

    #[test]
    fn too_many_dice_are_denied() {
        let session = TestSession::new(|agent| agent.tool(Dice).hook(TableLimit));
        let roll = |count: u64| session.ask(&format!("/tool dice {{\"sides\": 6, \"count\": {count}}}"));
        assert!(roll(11).contains("this table allows at most 10 dice"));
        assert!(roll(10).starts_with("dice → ["));
    }
}
