//! A tool.

use edge_harness::agent::{Tool, ToolContext, ToolError};
use edge_harness::types::{Category, Effect};

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

    async fn run(&self, roll: Roll, cx: ToolContext) -> Result<Vec<u64>, ToolError> {
        if roll.sides == 0 || roll.count > 100 {
            return Err(ToolError::new("a die has at least one side, and there are at most 100 dice"));
        }
        let seed = cx.clock.now().0;
        Ok((1..=roll.count).map(|die| seed.wrapping_mul(die * 2_654_435_761) % roll.sides + 1).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;
    use edge_harness::testkit::TestSession;

    #[test]
    fn rolls_the_requested_number_of_dice() {
        let session = TestSession::new(|agent| agent.tool(Dice));
        assert_eq!(session.ask("/tool dice {\"sides\": 1, \"count\": 3}"), "dice → [1,1,1]");
        assert!(session.ask("/tool dice {\"sides\": 0, \"count\": 1}").contains("at least one side"));
    }
}
