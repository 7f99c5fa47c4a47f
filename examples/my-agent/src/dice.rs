//! A tool.

use edge_harness::agent::{Tool, ToolContext, ToolError};
use edge_harness::types::{Category, Effect};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Rolls dice.
pub struct Dice;

/// The arguments.
#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct Roll {
    /// Sides of each die.
    sides: u64,
    /// Number of dice, at most 100.
    count: u64,
}

impl Tool for Dice {
    type Args = Roll;
    type Output = Vec<u64>;
    const NAME: &'static str = "dice";
    const DESCRIPTION: &'static str = "Rolls dice.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;
    // The next roll differs, so it is not skipped as a duplicate.
    const VARIES: bool = true;

    async fn run(&self, roll: Roll, cx: ToolContext) -> Result<Vec<u64>, ToolError> {
        if roll.sides == 0 || roll.count > 100 {
            return Err(ToolError::new("a die has at least one side, and there are at most 100 dice"));
        }
        let die = |number: u64| {
            let mut hasher = DefaultHasher::new();
            // The same call gives the same roll, should it run again after a crash.
            (&*cx.turn, &*cx.call_id, number).hash(&mut hasher);
            hasher.finish() % roll.sides + 1
        };
        Ok((0..roll.count).map(die).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;
    use edge_harness::testkit::TestSession;
    use edge_harness::types::{Policy, Rules};

    #[test]
    fn rolls_the_requested_number_of_dice() {
        let session = TestSession::new(|agent| agent.tool(Dice));
        assert_eq!(session.ask("/tool dice {\"sides\": 1, \"count\": 3}"), "dice → [1,1,1]");
        let many = session.ask("/tool dice {\"sides\": 6, \"count\": 100}");
        assert!((1..=6).all(|side| many.contains(&side.to_string())), "{many}");
        assert!(session.ask("/tool dice {\"sides\": 0, \"count\": 1}").contains("at least one side"));
    }

    #[test]
    fn rolls_after_an_approval() {
        let session = TestSession::new(|agent| agent.tool(Dice));
        session.permit(Rules { tools: [("dice".into(), Policy::Ask)].into(), ..Rules::default() });
        let calls = session.send("/tool dice {\"sides\": 1, \"count\": 3}").waiting();
        assert_eq!(session.approve(&calls[0].call_id).ended().reply.unwrap().text, "dice → [1,1,1]");
    }
}
