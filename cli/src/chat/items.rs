//! How the items of a conversation look.

use super::conversation::{Item, Tool, ToolState};
use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span, Text},
    widgets::{Paragraph, Wrap},
};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Lines of a tool's output, unless all is shown.
const PREVIEW: usize = 3;

pub(super) const DIM: Style = Style::new().fg(Color::DarkGray);
pub(super) const ACCENT: Style = Style::new().fg(Color::Cyan);
pub(super) const WARNING: Style = Style::new().fg(Color::Yellow);
pub(super) const ERROR: Style = Style::new().fg(Color::Red);

/// The items as they were drawn last, so that only those that have changed are laid out again.
#[derive(Default)]
pub(super) struct Layout {
    items: Vec<Drawn>,
}

/// An item at a width.
struct Drawn {
    fingerprint: u64,
    paragraph: Paragraph<'static>,
    height: usize,
}

impl Layout {
    /// Lays out the items for a width.
    pub(super) fn update(&mut self, items: &[Item], width: u16, is_expanded: bool) {
        self.items.truncate(items.len());
        for (at, item) in items.iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            (item, width, is_expanded).hash(&mut hasher);
            let fingerprint = hasher.finish();
            if self.items.get(at).is_some_and(|drawn| drawn.fingerprint == fingerprint) {
                continue;
            }
            let paragraph = Paragraph::new(text(item, width, is_expanded)).wrap(Wrap { trim: false });
            let drawn = Drawn { fingerprint, height: paragraph.line_count(width), paragraph };
            match self.items.get_mut(at) {
                Some(old) => *old = drawn,
                None => self.items.push(drawn),
            }
        }
    }

    /// Returns the number of lines of all items.
    pub(super) fn height(&self) -> usize {
        self.items.iter().map(|drawn| drawn.height).sum()
    }

    /// Returns the items with their heights.
    pub(super) fn items(&self) -> impl Iterator<Item = (&Paragraph<'static>, usize)> {
        self.items.iter().map(|drawn| (&drawn.paragraph, drawn.height))
    }
}

/// Returns an item as text, with an empty line at its end.
fn text(item: &Item, width: u16, is_expanded: bool) -> Text<'static> {
    // A terminal library cannot draw tabs, because their width depends on their place.
    let spaced = |text: &str| text.replace('\t', "    ");
    let mut text = match item {
        Item::User { text } => prefixed("› ", ACCENT.add_modifier(Modifier::BOLD), &spaced(text)),
        Item::Assistant { text, .. } => markdown(&spaced(text), width),
        Item::Reasoning { text, is_streaming, .. } if *is_streaming || is_expanded => {
            Text::styled(text.clone(), DIM.add_modifier(Modifier::ITALIC))
        }
        Item::Reasoning { .. } => Text::styled("thought about it", DIM.add_modifier(Modifier::ITALIC)),
        Item::Tool(tool) => tool_text(tool, is_expanded),
        Item::Notice { text, is_error } => Text::styled(text.clone(), if *is_error { ERROR } else { DIM }),
    };
    text.push_line(Line::default());
    text
}

fn prefixed(prefix: &'static str, style: Style, text: &str) -> Text<'static> {
    let lines = text.lines().enumerate().map(|(at, line)| {
        let start = if at == 0 { prefix } else { "  " };
        Line::from(vec![Span::styled(start, style), Span::styled(line.to_owned(), style)])
    });
    lines.collect()
}

/// Returns Markdown as text that owns its parts.
pub(super) fn markdown(source: &str, width: u16) -> Text<'static> {
    let options = tui_markdown::Options::default().table_width(width);
    let rendered = tui_markdown::from_str_with_options(source, &options);
    let lines = rendered.lines.into_iter().map(|line| {
        let spans = line.spans.into_iter().map(|span| Span::styled(span.content.into_owned(), span.style));
        Line { spans: spans.collect(), style: line.style, alignment: line.alignment }
    });
    Text { lines: lines.collect(), style: rendered.style, alignment: rendered.alignment }
}

/// Returns the card of a tool call: what was called, and what came of it.
fn tool_text(tool: &Tool, is_expanded: bool) -> Text<'static> {
    let (mark, style) = match &tool.state {
        ToolState::Running => ("●", ACCENT),
        ToolState::Waiting => ("?", WARNING),
        ToolState::Ended(outcome, _) if matches!(outcome.as_str(), "result" | "artifact") => {
            ("✓", Style::new().fg(Color::Green))
        }
        ToolState::Ended(..) => ("✗", ERROR),
    };
    let mut args = tool.args.replace('\n', " ");
    if !is_expanded && args.chars().count() > 100 {
        args = args.chars().take(100).chain(['…']).collect();
    }
    let name = Span::styled(format!("{mark} {} ", tool.name), style.add_modifier(Modifier::BOLD));
    let mut text = Text::from(Line::from(vec![name, Span::styled(args, DIM)]));
    if let ToolState::Ended(outcome, output) = &tool.state {
        let output = output.replace('\t', "    ");
        let is_plain = matches!(outcome.as_str(), "result" | "artifact");
        let shown = if is_plain { output } else { format!("{outcome}: {output}") };
        let all = shown.lines().count();
        let limit = if is_expanded { all } else { PREVIEW };
        for line in shown.lines().take(limit) {
            text.push_line(Line::styled(format!("  {line}"), DIM));
        }
        if all > limit {
            text.push_line(Line::styled(format!("  … {} more lines (Ctrl-O)", all - limit), DIM));
        }
    }
    text
}
