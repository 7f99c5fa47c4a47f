//! What the simulated model is asked beside the conversation: to sum up, and to draw facts.

use super::{
    model::{Piece, pieces},
    outside::Outside,
    plan::{Aside, mark},
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
pub fn answer(outside: &Outside, request: &ModelRequest) -> Option<Vec<Piece>> {
    let asked: String = request.messages.iter().map(|message| message.text()).collect();
    let sums_up = request.system.starts_with(SUM_UP);
    let text = if sums_up {
        leaving(outside, &asked);
        // What nobody could sum up before stays said.
        let lost = if asked.contains(LOST) { LOST } else { "" };
        format!("## Intent\n{} {lost}", named(outside, &asked).join(", "))
    } else if request.system.starts_with(EXTRACT) {
        // What is known already stands before the conversation.
        let said = asked.rsplit_once("Conversation:").map_or("", |(_, said)| said);
        named(outside, said).iter().map(|turn| format!("- they said {turn}\n")).collect()
    } else if request.system.starts_with(OBSERVE) {
        // Notes that were taken before stand before the conversation.
        notes(outside, asked.rsplit_once("Messages").map_or(asked.as_str(), |(_, said)| said))
    } else if request.system.starts_with(REFLECT) {
        notes(outside, &asked)
    } else {
        return None;
    };
    let place = outside.asides.replace(outside.asides.get() + 1);
    let fate = outside.plan.context.aside.get(place).copied().unwrap_or(Aside::Answered);
    outside.say("aside", || format!("{fate:?}: {text}"));
    let failed = |ms: u64, kind| vec![(ms, Err(ModelError::new(kind, "as planned")))];
    Some(match fate {
        Aside::Answered => whole(text, 1),
        Aside::Slow => whole(text, 700),
        // That nothing is worth remembering is an answer.
        Aside::Empty => whole(if request.system.starts_with(EXTRACT) { text } else { " ".into() }, 1),
        Aside::Failed => failed(1, ModelErrorKind::Billing),
        Aside::Hangs => failed(86_400_000, ModelErrorKind::Stalled),
    })
}

fn notes(outside: &Outside, asked: &str) -> String {
    let lines: String =
        named(outside, asked).iter().map(|turn| format!("* 🔴 (12:00) they said {turn}\n")).collect();
    format!("<observations>\nDate: 2026-11-20\n{lines}* 🟢 (12:01) nothing else\n</observations>")
}

fn whole(text: String, pace: u64) -> Vec<Piece> {
    pieces(vec![Part::Text { text }], pace, FinishReason::Stop)
}

/// The turns whose users' words a text names, and the errands: `⟨s0⟩ u1`, `⟨s0⟩ e0`, each once.
pub fn named(outside: &Outside, text: &str) -> Vec<String> {
    let sessions = outside.plan.sessions.iter().enumerate();
    let names = sessions.flat_map(|(place, session)| {
        let numbered = move |name, count| (0..count).map(move |n| format!("{} {name}{n}", mark(place)));
        numbered("u", session.turns.len()).chain(numbered("e", session.errands.len()))
    });
    names.filter(|name| text.contains(name.as_str())).collect()
}

/// 10: what leaves the context was made findable, and facts were drawn from it, before.
fn leaving(outside: &Outside, asked: &str) {
    // What was said by the user itself: the model repeats it.
    let said: String = asked.lines().filter(|line| line.contains("] user: ")).collect();
    if outside.plan.errands.on {
        // Of what a subagent was told, or has seen as a copy, nothing is learned.
        return;
    }
    for name in named(outside, &said) {
        let (place, turn) = (0..outside.plan.sessions.len())
            .find_map(|place| Some((place, name.strip_prefix(&format!("{} ", mark(place)))?)))
            .expect("a turn of a session");
        let plan = &outside.plan.sessions[place];
        if plan.erased {
            // An erasure that a store has stopped in the middle has removed what was kept of it.
            continue;
        }
        // Where room must be made, what a model does not do in time is still owed.
        let context = &outside.plan.context;
        let drawn = context.flush && context.aside.iter().all(|fate| *fate == Aside::Answered);
        let kinds = [Some(CollectionKind::Turns), drawn.then_some(CollectionKind::Facts)];
        for kind in kinds.into_iter().flatten() {
            let (tenant, user) = (plan.tenant.clone(), plan.user.clone());
            let of = Collection { tenant, agent: "default".into(), user, kind };
            let found = outside.index.statistics(&of, &[turn.to_owned()]).now_or_never();
            if !found.is_some_and(|found| found.is_ok_and(|found| found.frequency.first() > Some(&0))) {
                outside.find(10, format!("“{name}” leaves the context and is not among the {kind:?}"));
            }
        }
    }
}
