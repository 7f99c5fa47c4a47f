//! 22: while a runner works on a call, no other gets it or answers it. A call that must not run twice is given to one runner
//! only, and its outcome is unknown if that runner does not answer in time.

use super::view::View;
use crate::{
    tools,
    witness::{Claimed, Witness},
    world::{Node, World},
};

pub fn check(world: &World, view: &View, witness: &Witness, node: &Node) {
    let claims = &witness.claims;
    for claim in claims {
        if let Some(before) = holder(claims, &claim.call_id, claim.at)
            && before.runner != claim.runner
        {
            if before.until > claim.at.1 {
                world.ledger.find(22, format!("{claim:?} was granted during {before:?}"));
            }
            if !tools::may_repeat(&world.ledger, "lend") {
                world.ledger.find(22, format!("{claim:?} was granted after {before:?}"));
            }
        }
    }
    for entry in
        view.entries.iter().filter(|entry| entry.kind == "answer.given" && !entry.value["by"].is_null())
    {
        let call = entry.value["call_id"].as_str().unwrap_or_default();
        let claim = holder(claims, call, (entry.at, entry.at)).filter(|claim| entry.at < claim.until);
        let Some(claim) = claim else { continue };
        let is_own = witness
            .submissions
            .iter()
            .any(|sent| sent.call_id == call && sent.body["runner"] == claim.runner && sent.at.0 <= entry.at);
        if !is_own {
            world.ledger.find(22, format!("{} during {claim:?}", entry.json));
        }
    }
    let undisturbed = node.crashed_at.get() == 0 && node.disk.refused_at.get() == 0;
    for call in
        view.turns.iter().flat_map(|turn| &turn.calls).filter(|call| call.name == "lend" && undisturbed)
    {
        let Some(outcome) = view.outcome(call) else { continue };
        // A call that has been answered may be unknown for other reasons.
        if !outcome.json.contains("the client that ran the tool did not answer") {
            continue;
        }
        if !claims.iter().any(|claim| claim.call_id == call.id && claim.until <= outcome.at) {
            world.ledger.find(22, format!("no runner has lost the call of {}", outcome.json));
        }
    }
}

/// Returns the newest claim of a call that was granted before this span; `None` if another one may have been granted in it.
fn holder<'a>(claims: &'a [Claimed], call: &str, span: (u64, u64)) -> Option<&'a Claimed> {
    let mut of_call = claims.iter().filter(|claim| claim.call_id == call);
    let is_other =
        |claim: &&Claimed| claim.at != span && claim.at.1 > span.0 && claim.at.0 < span.1.max(span.0 + 1);
    if of_call.clone().any(|claim| is_other(&claim)) {
        return None;
    }
    let before = of_call.by_ref().filter(|claim| claim.at != span && claim.at.1 <= span.0);
    // The order of claims at the same time is unknown. A claim is only extended.
    before.max_by_key(|claim| (claim.at.1, claim.until))
}
