//! The simulated model's one-shot calls: summaries, notes and facts.

use super::{Piece, pieces};
use crate::{
    ledger::{Ledger, Unindexed},
    scenario::{OneShotFate, SessionScenario, mark},
};
use edge_harness::ports::{
    MemoryIndex,
    memory::{Collection, CollectionKind},
};
use edge_harness::types::{FinishReason, ModelError, ModelErrorKind, ModelRequest, Part};
use futures::FutureExt;

/// How the prompts start.
const SUMMARIZE: &str = "You summarize the earlier part of a conversation";
/// The phrase in a summary for messages that were never summarized.
const LOST: &str = "left out here";
const OBSERVE: &str = "You take notes so that an assistant can remember";
const REFLECT: &str = "You maintain the notes that an assistant uses";
const EXTRACT: &str = "You maintain the long-term memory of an assistant.";

/// Returns the response, if this is a one-shot call.
pub fn answer(ledger: &Ledger, request: &ModelRequest) -> Option<Vec<Piece>> {
    let asked: String = request.messages.iter().map(|message| message.text()).collect();
    let sums_up = request.system.starts_with(SUMMARIZE);
    let text = if sums_up {
        leaving(ledger, &asked);
        // The note about messages that were never summarized must be kept.
        let lost = if asked.contains(LOST) { LOST } else { "" };
        format!("## Intent\n{} {lost}", named(ledger, &asked).join(", "))
    } else if request.system.starts_with(EXTRACT) {
        // Known facts come before the conversation.
        let said = asked.rsplit_once("Conversation:").map_or("", |(_, said)| said);
        named(ledger, said).iter().map(|turn| format!("- they said {turn}\n")).collect()
    } else if request.system.starts_with(OBSERVE) {
        // Earlier notes come before the conversation.
        notes(ledger, asked.rsplit_once("Messages").map_or(asked.as_str(), |(_, said)| said))
    } else if request.system.starts_with(REFLECT) {
        notes(ledger, &asked)
    } else {
        return None;
    };
    let place = ledger.one_shots.replace(ledger.one_shots.get() + 1);
    let fate = ledger.scenario.context.one_shots.get(place).copied().unwrap_or(OneShotFate::Answered);
    ledger.say("aside", || format!("{fate:?}: {text}"));
    let failed = |ms: u64, kind| vec![(ms, Err(ModelError::new(kind, "as planned")))];
    Some(match fate {
        OneShotFate::Answered => whole(text, 1),
        OneShotFate::Slow => whole(text, 700),
        // Extracting no facts is a valid response.
        OneShotFate::Empty => whole(if request.system.starts_with(EXTRACT) { text } else { " ".into() }, 1),
        OneShotFate::Failed => failed(1, ModelErrorKind::Billing),
        OneShotFate::Hangs => failed(86_400_000, ModelErrorKind::Stalled),
    })
}

fn notes(ledger: &Ledger, asked: &str) -> String {
    let lines: String =
        named(ledger, asked).iter().map(|turn| format!("* 🔴 (12:00) they said {turn}\n")).collect();
    format!("<observations>\nDate: 2026-11-20\n{lines}* 🟢 (12:01) nothing else\n</observations>")
}

fn whole(text: String, pace: u64) -> Vec<Piece> {
    pieces(vec![Part::Text { text }], pace, FinishReason::Stop)
}

/// Returns the turns and tasks whose messages the text mentions: `⟨s0⟩ u1`, `⟨s0⟩ e0`, each once.
pub fn named(ledger: &Ledger, text: &str) -> Vec<String> {
    let sessions = ledger.scenario.sessions.iter().enumerate();
    let names = sessions.flat_map(|(place, session)| {
        let numbered = move |name, count| (0..count).map(move |n| format!("{} {name}{n}", mark(place)));
        numbered("u", session.turns.len()).chain(numbered("e", session.tasks.len()))
    });
    names.filter(|name| text.contains(name.as_str())).collect()
}

/// Records the messages that leave the window before they are indexed and facts are extracted from them.
fn leaving(ledger: &Ledger, asked: &str) {
    // Only the user's own messages, because the model repeats them.
    let said: String = asked.lines().filter(|line| line.contains("] user: ")).collect();
    if ledger.scenario.subagents.on {
        // No facts are extracted in a subagent.
        return;
    }
    for name in named(ledger, &said) {
        let (place, turn) = (0..ledger.scenario.sessions.len())
            .find_map(|place| Some((place, name.strip_prefix(&format!("{} ", mark(place)))?)))
            .expect("a turn of a session");
        let scenario = &ledger.scenario.sessions[place];
        if scenario.erased {
            // An erasure that failed halfway has already removed the index entries.
            continue;
        }
        // When the window must shrink, extraction may be postponed if the model fails or times out, or the
        // disk refuses a write. `context::owed` checks that it is not forgotten.
        let context = &ledger.scenario.context;
        let answered = context.one_shots.iter().all(|fate| *fate == OneShotFate::Answered);
        let drawn = context.flush && answered && scenario.refusals.is_empty();
        let kinds = [Some(CollectionKind::Turns), drawn.then_some(CollectionKind::Facts)];
        for kind in kinds.into_iter().flatten() {
            if !is_indexed(ledger, scenario, turn, kind) {
                let at = ledger.sched.now();
                ledger.unindexed.borrow_mut().push(Unindexed { place, message: name.clone(), kind, at });
            }
        }
    }
}

/// Returns whether the index of the session's user mentions a turn, such as `u0`.
pub fn is_indexed(ledger: &Ledger, session: &SessionScenario, turn: &str, kind: CollectionKind) -> bool {
    let (tenant, user) = (session.tenant.clone(), session.user.clone());
    let of = Collection { tenant, agent: "default".into(), user, kind };
    let found = ledger.index.statistics(&of, &[turn.to_owned()]).now_or_never();
    found.is_some_and(|found| found.is_ok_and(|found| found.frequency.first() > Some(&0)))
}
