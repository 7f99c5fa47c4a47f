//! Shows the results of background tasks to the model.
//!
//! They are part of the text after the conversation, in each step of the turn. The commit of the first step that has shown a
//! result stores this, so a result is shown again if the step is repeated.

use super::RuntimeContext;
use crate::session::WriteError;
use crate::types::{BackgroundTask, TaskView, TurnStatus, background::MAX_SHOWN, call::untrusted, text};

/// Maximum length of a result in a request, in characters.
const MAX_CHARS: usize = 2_000;

/// Returns the results of tasks that have ended: first those that the model has not been shown, then those that it was
/// first shown in this turn.
///
/// # Errors
/// If the store fails.
pub(super) fn reminder(cx: &RuntimeContext) -> Result<Option<String>, WriteError> {
    let subagents = std::rc::Rc::clone(&cx.session.state().subagents);
    let mut new: Vec<&BackgroundTask> = subagents.tasks.iter().filter(|task| task.is_unshown()).collect();
    let mut earlier: Vec<_> =
        subagents.tasks.iter().filter(|task| task.shown_in.as_ref() == Some(cx.turn())).collect();
    new.sort_by_key(|task| task.ended_at);
    earlier.sort_by_key(|task| std::cmp::Reverse(task.ended_at));
    let more = new.len().saturating_sub(MAX_SHOWN);
    new.truncate(MAX_SHOWN);
    cx.state.show_background(new.iter().map(|task| task.id.clone()).collect());
    let mut blocks = Vec::new();
    for task in new.into_iter().chain(earlier).take(MAX_SHOWN) {
        let view = cx.session.background_task(&task.id)?;
        blocks.extend(view.map(|view| block(&view)));
    }
    if blocks.is_empty() {
        return Ok(None);
    }
    let rest = if more > 0 {
        format!("\n{more} more have ended; your next steps show them.")
    } else {
        String::new()
    };
    let blocks = untrusted(&blocks.join("\n\n"));
    Ok(Some(format!(
        "<system-reminder>\nThese background tasks of yours have ended:\n{blocks}{rest}\n</system-reminder>"
    )))
}

fn block(task: &TaskView) -> String {
    let label = task.label.as_ref().map(|label| format!(", label {label:?}")).unwrap_or_default();
    let head = format!("Task {} (agent {}{label}, agent_key {})", task.id, task.agent, task.session);
    let reply = task.reply.as_deref().unwrap_or_default();
    let cut = |left_out, _| format!("{left_out} characters left out: task_output returns the whole result");
    let shown = text::ends_around(reply, MAX_CHARS, cut).unwrap_or_else(|| reply.to_owned());
    match task.status {
        TurnStatus::Failed => {
            let error = task.error.as_deref().unwrap_or("no reason was given");
            format!("{head} failed: {error}")
        }
        TurnStatus::Canceled => format!("{head} was canceled.\n{shown}").trim_end().to_owned(),
        _ => format!("{head} completed:\n{shown}"),
    }
}
