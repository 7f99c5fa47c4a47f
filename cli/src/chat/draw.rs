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
    let (overview, body, hint) = (overview(app), body(app, area.width), hint(app));
    let height = |text: &Text<'static>| wrapped(text.clone()).line_count(area.width);
    // What waits may be long, such as a plan; at least a third of the terminal shows the conversation.
    let limit = usize::from(area.height) * 2 / 3;
    let hint_height = height(&hint).min(limit);
    let all = height(&body);
    let is_cut = all > limit - hint_height;
    // A line says how much is hidden.
    let shown = all.min(limit.saturating_sub(hint_height + usize::from(is_cut)));
    let mut above = 0;
    if let Some(place) = &mut app.shown {
        place.above = place.above.min(all - shown);
        place.below = all - shown - place.above;
        above = place.above;
    }
    let cut = if is_cut { cut_line(above, all - shown - above) } else { Text::default() };
    let overview_height =
        height(&overview).min(limit.saturating_sub(hint_height + shown + usize::from(is_cut)));
    let rows = |lines: usize| Constraint::Length(u16::try_from(lines).unwrap_or(u16::MAX));
    let [conversation, beside, call, more, keys, input, status] = Areas::vertical([
        Constraint::Min(1),
        rows(overview_height),
        rows(shown),
        rows(usize::from(is_cut)),
        rows(hint_height),
        Constraint::Length(app.input.height() + 2),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_conversation(frame, app, conversation);
    frame.render_widget(wrapped(overview), beside);
    frame.render_widget(wrapped(body).scroll((u16::try_from(above).unwrap_or(u16::MAX), 0)), call);
    frame.render_widget(cut, more);
    frame.render_widget(wrapped(hint), keys);
    let block = Block::new().borders(Borders::TOP | Borders::BOTTOM).border_style(DIM);
    let inner = block.inner(input);
    frame.render_widget(block, input);
    let [mark, text] = Areas::horizontal([Constraint::Length(2), Constraint::Min(1)]).areas(inner);
    frame.render_widget(Span::styled("› ", ACCENT), mark);
    frame.render_widget(app.input.widget(), text);
    frame.render_widget(status_line(app), status);
}

fn wrapped(text: Text<'static>) -> Paragraph<'static> {
    Paragraph::new(text).wrap(Wrap { trim: false })
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

/// Returns the tasks and the queue.
fn overview(app: &App) -> Text<'static> {
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
    text
}

/// Returns the call that waits for the user, in full.
fn body(app: &App, width: u16) -> Text<'static> {
    let mut text = Text::default();
    let waits = &app.conversation.waits;
    let Some(wait) = waits.first() else { return text };
    let count = waits.len();
    let more = if count > 1 { format!(" (1 of {count})") } else { String::new() };
    let style = WARNING.add_modifier(Modifier::BOLD);
    let details = wait.details();
    let title = if details.is_some() { wait.title() } else { wait.describe() };
    text.extend(Text::styled(format!("{title}{more}"), style));
    if let Some(details) = details {
        let is_plan = wait.call.kind == "plan";
        text.extend(if is_plan { markdown(&details, width) } else { Text::styled(details, DIM) });
    }
    for (number, option) in wait.options().iter().enumerate() {
        text.push_line(Line::styled(format!("  {}. {option}", number + 1), WARNING));
    }
    if wait.call.by.as_deref() == Some("approver") {
        text.push_line(Line::styled("the approval needs a key with the scope approve", DIM));
    }
    text
}

/// Says what the user may enter, as soon as it has an effect.
fn hint(app: &App) -> Text<'static> {
    match app.conversation.waits.first() {
        Some(_) if app.is_deciding => Text::styled("sending …", DIM),
        Some(wait) if app.can_decide() => Text::styled(wait.hint(), DIM),
        Some(_) => Text::styled("…", DIM),
        None => Text::default(),
    }
}

/// Says how many lines of the call are hidden.
fn cut_line(above: usize, below: usize) -> Text<'static> {
    Text::styled(format!("… {below} more lines below, {above} above (PgDn, PgUp)"), WARNING)
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
    use crossterm::event::{Event as TerminalEvent, KeyCode, KeyEvent, KeyModifiers};
    use ratatui::{Terminal, backend::TestBackend};
    use serde_json::{Value, json};
    use std::time::{Duration, Instant};

    fn screen(events: &[Value], scroll: usize) -> String {
        let mut app = App::new("s", "default", Vec::new());
        for event in events {
            app.conversation.apply(&Received::parse(&event.to_string()).unwrap());
        }
        app.scroll = scroll;
        let now = Instant::now();
        app.show(now);
        app.show(now + Duration::from_secs(1));
        drawn(&mut app)
    }

    fn drawn(app: &mut App) -> String {
        let mut terminal = Terminal::new(TestBackend::new(60, 18)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
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
    fn long_arguments_scroll_and_the_hint_stays() {
        let mut app = App::new("s", "default", Vec::new());
        let content = format!("start {} end", "word ".repeat(300));
        let call =
            json!({"call_id": "c", "kind": "approval", "name": "write_file", "args": {"content": content}});
        let waiting = json!({"type": "turn.waiting", "turn": "t", "pending": [call]});
        app.conversation.apply(&Received::parse(&waiting.to_string()).unwrap());
        let now = Instant::now();
        app.show(now);
        let before = drawn(&mut app);
        assert!(before.contains("approval write_file") && !before.contains("y approve"), "{before}");
        app.show(now + Duration::from_secs(1));
        let start = drawn(&mut app);
        for part in ["start", "more lines below, 0 above", "y approve"] {
            assert!(start.contains(part), "{part:?} is not in:\n{start}");
        }
        for _ in 0..9 {
            app.handle(&TerminalEvent::Key(KeyEvent::new(KeyCode::PageDown, KeyModifiers::NONE)));
            drawn(&mut app);
        }
        let end = drawn(&mut app);
        for part in ["end\"", "… 0 more lines below", "y approve"] {
            assert!(end.contains(part), "{part:?} is not in:\n{end}");
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
