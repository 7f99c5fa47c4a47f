//! Draws the chat.

use super::{
    app::App,
    conversation::Activity,
    items::{ACCENT, DIM, ERROR, WARNING, markdown},
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout as Areas, Rect},
    style::Modifier,
    text::{Line, Span, Text},
    widgets::{Block, Borders, Paragraph, Wrap},
};

/// Signs of activity, one after the other.
const SPINNER: [&str; 8] = ["⣾", "⣽", "⣻", "⢿", "⡿", "⣟", "⣯", "⣷"];
/// Tasks that are shown.
const MAX_TASKS: usize = 6;

/// Draws everything, from the state alone.
pub(super) fn draw(frame: &mut Frame, app: &mut App) {
    let area = frame.area();
    let aside = aside(app, area);
    // What waits may be long, such as a plan; at least a third of the terminal shows the conversation.
    let aside_height = Paragraph::new(aside.clone()).wrap(Wrap { trim: false }).line_count(area.width);
    let aside_height = u16::try_from(aside_height).unwrap_or(u16::MAX).min(area.height * 2 / 3);
    let [conversation, beside, input, status] = Areas::vertical([
        Constraint::Min(1),
        Constraint::Length(aside_height),
        Constraint::Length(app.input.height() + 2),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_conversation(frame, app, conversation);
    frame.render_widget(Paragraph::new(aside).wrap(Wrap { trim: false }), beside);
    let block = Block::new().borders(Borders::TOP | Borders::BOTTOM).border_style(DIM);
    let inner = block.inner(input);
    frame.render_widget(block, input);
    let [mark, text] = Areas::horizontal([Constraint::Length(2), Constraint::Min(1)]).areas(inner);
    frame.render_widget(Span::styled("› ", ACCENT), mark);
    frame.render_widget(app.input.widget(), text);
    frame.render_widget(status_line(app), status);
}

/// Draws the end of the conversation, or what is above it if the user has scrolled.
fn draw_conversation(frame: &mut Frame, app: &mut App, area: Rect) {
    app.layout.update(&app.conversation.items, area.width, app.is_expanded);
    let height = usize::from(area.height);
    let hidden = app.layout.height().saturating_sub(height);
    app.scroll = app.scroll.min(hidden);
    // Number of the first line that is shown.
    let first = hidden - app.scroll;
    let mut top = 0;
    for (paragraph, lines) in app.layout.items() {
        let (start, end) = (top.max(first), (top + lines).min(first + height));
        if start < end {
            let at = |line: usize| u16::try_from(line).unwrap_or(u16::MAX);
            let place = Rect { y: area.y + at(start - first), height: at(end - start), ..area };
            frame.render_widget(paragraph.clone().scroll((at(start - top), 0)), place);
        }
        top += lines;
    }
}

/// Returns what stands between the conversation and the input: tasks, the queue, and what waits for the user.
fn aside(app: &App, area: Rect) -> Text<'static> {
    let mut text = Text::default();
    let conversation = &app.conversation;
    let is_open = conversation.tasks.iter().any(|task| task.status != "completed");
    for task in conversation.tasks.iter().filter(|_| is_open).take(MAX_TASKS) {
        let (mark, style) = match task.status.as_str() {
            "completed" => ("✓", DIM),
            "in_progress" => ("▸", ACCENT),
            _ => ("·", DIM),
        };
        text.push_line(Line::styled(format!("{mark} {}", task.content), style));
    }
    if !conversation.queue.is_empty() {
        let count = conversation.queue.len();
        text.push_line(Line::styled(format!("{count} queued (/drop N removes one)"), DIM));
    }
    if let Some(wait) = conversation.waits.first() {
        let count = conversation.waits.len();
        let more = if count > 1 { format!(" (1 of {count})") } else { String::new() };
        let style = WARNING.add_modifier(Modifier::BOLD);
        let details = wait.details();
        let title = if details.is_some() { wait.title() } else { wait.describe() };
        text.push_line(Line::styled(format!("{title}{more}"), style));
        if let Some(details) = details {
            let is_plan = wait.call.kind == "plan";
            let mut shown = if is_plan { markdown(&details, area.width) } else { Text::styled(details, DIM) };
            let (all, limit) = (shown.lines.len(), usize::from(area.height / 2));
            shown.lines.truncate(limit);
            text.extend(shown);
            if all > limit {
                text.push_line(Line::styled(format!("… {} more lines (Ctrl-O, PgUp)", all - limit), DIM));
            }
        }
        for (number, option) in wait.options().iter().enumerate() {
            text.push_line(Line::styled(format!("  {}. {option}", number + 1), WARNING));
        }
        if wait.call.by.as_deref() == Some("approver") {
            text.push_line(Line::styled("the approval needs a key with the scope approve", DIM));
        }
        text.push_line(Line::styled(wait.hint(), DIM));
    }
    text
}

fn status_line(app: &App) -> Line<'static> {
    let conversation = &app.conversation;
    let mut spans = Vec::new();
    match (&app.lost, conversation.activity) {
        (Some(cause), _) => spans.push(Span::styled(format!("connecting again: {cause}"), ERROR)),
        (None, Activity::Running) => {
            spans.push(Span::styled(format!("{} running", SPINNER[app.frame % SPINNER.len()]), ACCENT));
        }
        (None, Activity::Waiting) => spans.push(Span::styled("waiting for you", WARNING)),
        (None, Activity::Idle) => spans.push(Span::styled("idle", DIM)),
    }
    if app.is_leaving {
        spans.push(Span::styled(" · press Ctrl-C again to leave", WARNING));
    }
    if let Some(error) = &app.error {
        spans.push(Span::styled(format!(" · {}", error.lines().next().unwrap_or_default()), ERROR));
    }
    let mut facts = vec![app.session.clone(), app.agent.clone()];
    facts.extend(conversation.mode.clone());
    facts.extend(conversation.model.clone());
    facts.extend(
        conversation.window.map(|(used, limit)| format!("{} % of the context", used * 100 / limit.max(1))),
    );
    if app.scroll > 0 {
        facts.push(format!("{} lines below", app.scroll));
    }
    spans.push(Span::styled(format!(" · {}", facts.join(" · ")), DIM));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Received;
    use ratatui::{Terminal, backend::TestBackend};
    use serde_json::{Value, json};

    fn screen(events: &[Value], scroll: usize) -> String {
        let mut app = App::new("s", "default", Vec::new());
        for event in events {
            app.conversation.apply(&Received::parse(&event.to_string()).unwrap());
        }
        app.scroll = scroll;
        let mut terminal = Terminal::new(TestBackend::new(60, 18)).unwrap();
        terminal.draw(|frame| draw(frame, &mut app)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let rows =
            buffer.content().chunks(60).map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        rows.map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn started(text: &str) -> Value {
        json!({"type": "turn.started", "turn": "t", "message":
            {"id": "m0", "role": "user", "parts": [{"type": "text", "text": text}]}})
    }

    #[test]
    fn a_conversation_with_a_tool_and_an_approval() {
        let tool = json!({"type": "tool.started", "turn": "t", "call_id": "c", "name": "write_file", "args": {"path": "a"}});
        let call = json!({"call_id": "c", "kind": "approval", "name": "write_file", "args": {"path": "a"}});
        let waiting = json!({"type": "turn.waiting", "turn": "t", "pending": [call]});
        let text =
            json!({"type": "message.delta", "turn": "t", "id": "m1", "delta": "I shall **write** it."});
        let shown = screen(&[started("Write it."), text, tool, waiting], 0);
        for part in [
            "\"path\": \"a\"",
            "› Write it.",
            "I shall write it.",
            "● write_file {\"path\":\"a\"}",
            "approval write_file",
            "y approve",
            "waiting for you · s · default",
        ] {
            assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
        }
    }

    #[test]
    fn the_end_is_shown_and_the_start_after_scrolling() {
        let lines: Vec<String> = (1..=50).map(|line| format!("line {line}.")).collect();
        let text = json!({"type": "message.delta", "turn": "t", "id": "m1", "delta": lines.join("\n\n")});
        let events = [started("Count."), text];
        let (end, start) = (screen(&events, 0), screen(&events, 1000));
        assert!(end.contains("line 50.") && !end.contains("Count."), "{end}");
        assert!(
            start.contains("› Count.") && start.contains("line 1.") && !start.contains("line 50."),
            "{start}"
        );
        assert!(start.contains("lines below"), "{start}");
    }

    #[test]
    fn text_cannot_control_the_terminal() {
        let shown = screen(&[started("a\u{1b}[2Jb\u{7}c")], 0);
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
    }
}
