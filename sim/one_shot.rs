//! What the simulated model is asked beside the conversation: to sum up, and to draw facts.

use super::{
    ledger::Ledger,
    model::{Piece, pieces},
    scenario::{OneShotFate, mark},
};
use edge_harness::ports::{
    MemoryIndex,
    memory::{Collection, CollectionKind},
};
use edge_harness::types::{FinishReason, ModelError, ModelErrorKind, ModelRequest, Part};
use futures::FutureExt;

/// How the questions begin.
const SUM_UP: &str = "You sum up the earlier part of a conversation";
/// What a summary says of messages that nobody summed up.
const LOST: &str = "left out here";
const OBSERVE: &str = "You take the notes by which an assistant remembers";
const REFLECT: &str = "You keep the notes by which an assistant remembers";
const EXTRACT: &str = "You keep the long-term memory of an assistant.";

/// The answer, if it is one of these questions.
pub fn answer(ledger: &Ledger, request: &ModelRequest) -> Option<Vec<Piece>> {
    let asked: String = request.messages.iter().map(|message| message.text()).collect();
    let sums_up = request.system.starts_with(SUM_UP);
    let text = if sums_up {
        leaving(ledger, &asked);
        // What nobody could sum up before stays said.
        let lost = if asked.contains(LOST) { LOST } else { "" };
        format!("## Intent\n{} {lost}", named(ledger, &asked).join(", "))
    } else if request.system.starts_with(EXTRACT) {
        // What is known already stands before the conversation.
        let said = asked.rsplit_once("Conversation:").map_or("", |(_, said)| said);
        named(ledger, said).iter().map(|turn| format!("- they said {turn}\n")).collect()
    } else if request.system.starts_with(OBSERVE) {
        // Notes that were taken before stand before the conversation.
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
        // That nothing is worth remembering is an answer.
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

/// The turns whose users' words a text names, and the errands: `⟨s0⟩ u1`, `⟨s0⟩ e0`, each once.
pub fn named(ledger: &Ledger, text: &str) -> Vec<String> {
    let sessions = ledger.scenario.sessions.iter().enumerate();
    let names = sessions.flat_map(|(place, session)| {
        let numbered = move |name, count| (0..count).map(move |n| format!("{} {name}{n}", mark(place)));
        numbered("u", session.turns.len()).chain(numbered("e", session.tasks.len()))
    });
    names.filter(|name| text.contains(name.as_str())).collect()
}

/// 10: what leaves the context was made findable, and facts were drawn from it, before.
fn leaving(ledger: &Ledger, asked: &str) {
    // What was said by the user itself: the model repeats it.
    let said: String = asked.lines().filter(|line| line.contains("] user: ")).collect();
    if ledger.scenario.subagents.on {
        // Of what a subagent was told, or has seen as a copy, nothing is learned.
        return;
    }
    for name in named(ledger, &said) {
        let (place, turn) = (0..ledger.scenario.sessions.len())
            .find_map(|place| Some((place, name.strip_prefix(&format!("{} ", mark(place)))?)))
            .expect("a turn of a session");
        let scenario = &ledger.scenario.sessions[place];
        if scenario.erased {
            // An erasure that a store has stopped in the middle has removed what was kept of it.
            continue;
        }
        // Where room must be made, what a model does not do in time is still owed.
        let context = &ledger.scenario.context;
        let drawn = context.flush && context.one_shots.iter().all(|fate| *fate == OneShotFate::Answered);
        let kinds = [Some(CollectionKind::Turns), drawn.then_some(CollectionKind::Facts)];
        for kind in kinds.into_iter().flatten() {
            let (tenant, user) = (scenario.tenant.clone(), scenario.user.clone());
            let of = Collection { tenant, agent: "default".into(), user, kind };
            let found = ledger.index.statistics(&of, &[turn.to_owned()]).now_or_never();
            if !found.is_some_and(|found| found.is_ok_and(|found| found.frequency.first() > Some(&0))) {
                ledger.find(10, format!("“{name}” leaves the context and is not among the {kind:?}"));
            }
        }
    }
}
