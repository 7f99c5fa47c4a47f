//! A hook.

use edge_harness::agent::{
    ActDecision, Hook, RuntimeContext,
    hook::{HookEvent, PreActing},
};

/// Denies the tool `dice` to these users.
pub struct Banned(pub &'static [&'static str]);

#[async_trait::async_trait(?Send)]
impl Hook for Banned {
    fn name(&self) -> &'static str {
        "banned"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreActing]
    }

    async fn pre_acting(&self, event: &mut PreActing<'_>, cx: &RuntimeContext) -> ActDecision {
        let is_banned = self.0.contains(&cx.user.as_str());
        match event.spec.map(|spec| spec.name.as_str()) {
            Some("dice") if is_banned => ActDecision::Deny("this user may not play".into()),
            _ => ActDecision::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Banned;
    use crate::dice::Dice;
    use edge_harness::testkit::TestSession;

    #[test]
    fn denies_dice_to_banned_users_only() {
        let roll = "/tool dice {\"sides\": 1, \"count\": 2}";
        let reply = |banned| TestSession::new(|agent| agent.tool(Dice).hook(Banned(banned))).ask(roll);
        // The user of a `TestSession` is `test`.
        assert!(reply(&["test"]).contains("this user may not play"));
        assert_eq!(reply(&["mallory"]), "dice → [1,1]");
    }
}
