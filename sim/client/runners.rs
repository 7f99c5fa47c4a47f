//! Runners: clients that claim the calls of external tools before they answer, and may be killed while they work.

use super::Client;
use crate::{
    dice::Dice,
    witness::{Claimed, Submission},
};
use edge_harness::types::Timestamp;
use serde_json::json;

impl Client {
    /// Claims the call of an answer as a runner, and lets the runner work. Returns `false` if no runner sends the answer.
    pub(super) async fn run(&self, submission: &mut Submission, dice: &mut Dice) -> bool {
        let (runner, other) = dice.pick(&[("one", "two"), ("two", "one")]);
        let lease_s = dice.pick(&[1, 4, 20]);
        if !self.claim(submission, runner, lease_s).await {
            return dice.chance(50);
        }
        match dice.below(5) {
            // The runner is killed. The other one takes over, if it may.
            0 => {
                self.world.sched.sleep(lease_s * 1_000 + dice.pick(&[1, 700])).await;
                return self.claim(submission, other, lease_s).await;
            }
            // It answers when its lease has ended.
            1 => self.world.sched.sleep(lease_s * 1_000 + dice.pick(&[0, 1, 700])).await,
            // It answers without its name, or as another.
            2 => submission.body["runner"] = dice.pick(&[json!(null), json!("other")]),
            _ => self.world.sched.sleep(dice.pick(&[0, 3, 400])).await,
        }
        true
    }

    /// Claims the call of an answer, which then has the name of the runner. Returns whether the claim was granted.
    async fn claim(&self, submission: &mut Submission, runner: &'static str, lease_s: u64) -> bool {
        let route = format!("POST /v1/pending/{}/claim?session={}", submission.call_id, self.node.session);
        let sent = self.world.sched.now();
        let response = self.json(&route, &json!({ "runner": runner, "lease_s": lease_s })).await;
        let now = self.world.sched.now();
        let Some((200, call)) = response else { return false };
        let until = call["claim"]["until"].as_str().and_then(Timestamp::parse).map_or(0, |at| at.0);
        let claimed = Claimed { call_id: submission.call_id.clone(), runner, at: (sent, now), until };
        self.witness(|w| w.claims.push(claimed));
        submission.body["runner"] = json!(runner);
        true
    }
}
