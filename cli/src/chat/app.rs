//! The state of the chat, and what keys do.

use super::{
    conversation::{Activity, Conversation},
    input::Input,
    items::Layout,
    requests::{Change, Request},
    shown::Shown,
};
use crate::error::Error;
use crossterm::event::{Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Instant;

/// Lines that a key scrolls.
const PAGE: usize = 10;

/// Everything that is drawn.
pub(super) struct App {
    pub(super) session: String,
    pub(super) agent: String,
    /// The modes of the agent, in order.
    pub(super) modes: Vec<String>,
    pub(super) conversation: Conversation,
    pub(super) input: Input,
    pub(super) layout: Layout,
    /// Lines below the shown ones.
    pub(super) scroll: usize,
    /// The call that waits for the user, as it is shown.
    pub(super) shown: Option<Shown>,
    /// Whether a decision or an answer is on its way to the server.
    pub(super) is_deciding: bool,
    /// Whether tool calls are shown in full.
    pub(super) is_expanded: bool,
    /// Why the connection is lost.
    pub(super) lost: Option<String>,
    /// The last thing that went wrong.
    pub(super) error: Option<String>,
    /// Whether Ctrl-C was pressed, so that the next one leaves.
    pub(super) is_leaving: bool,
    /// Counts the redraws, for the sign of activity.
    pub(super) frame: usize,
}

/// What a key leads to.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    None,
    Send(Request),
    Leave,
}

impl App {
    pub(super) fn new(session: &str, agent: &str, modes: Vec<String>) -> Self {
        Self {
            session: session.to_owned(),
            agent: agent.to_owned(),
            modes,
            conversation: Conversation::new(session),
            input: Input::new(),
            layout: Layout::default(),
            scroll: 0,
            shown: None,
            is_deciding: false,
            is_expanded: false,
            lost: None,
            error: None,
            is_leaving: false,
            frame: 0,
        }
    }

    /// Notes which call is shown from now on.
    pub(super) fn show(&mut self, now: Instant) {
        self.shown = Shown::of(self.conversation.waits.first(), self.shown.take(), now);
    }

    /// Returns whether the user can decide about the call that is shown.
    pub(super) fn can_decide(&self) -> bool {
        !self.is_deciding && self.shown.as_ref().is_some_and(|shown| shown.is_read)
    }

    /// Notes what a request has changed.
    pub(super) fn done(&mut self, request: &Request, change: Option<Change>) {
        if let Request::Resolve(wait, _) = request {
            self.is_deciding = false;
            self.conversation.waits.retain(|waiting| waiting.call.call_id != wait.call.call_id);
        }
        match change {
            // An accepted message waits in the queue if a turn runs, or else its turn begins at once.
            Some(Change::Accepted(turn)) if self.conversation.activity != Activity::Idle => {
                self.conversation.enqueue(Some(turn));
            }
            Some(Change::Dropped(turn)) => self.conversation.dequeue(Some(turn)),
            Some(Change::Accepted(_)) | None => {}
        }
    }

    /// Shows why a request failed, and returns its text to the user.
    pub(super) fn failed(&mut self, request: &Request, error: &Error) {
        self.error = Some(error.to_string());
        if matches!(request, Request::Resolve(..)) {
            self.is_deciding = false;
        }
        if let Some(text) = request.text() {
            self.input.restore(&text);
        }
    }

    /// Handles what the terminal reports.
    pub(super) fn handle(&mut self, event: &TerminalEvent) -> Action {
        match event {
            TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => self.key(*key),
            TerminalEvent::Paste(text) => {
                self.input.paste(text);
                Action::None
            }
            _ => Action::None,
        }
    }

    fn key(&mut self, key: KeyEvent) -> Action {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return self.interrupt();
        }
        self.is_leaving = false;
        match key.code {
            KeyCode::Char('d') if is_control && self.input.is_empty() => return Action::Leave,
            KeyCode::Char('o') if is_control => self.is_expanded = !self.is_expanded,
            KeyCode::Char('j') if is_control => self.input.new_line(),
            KeyCode::Enter if key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT) => {
                self.input.new_line()
            }
            KeyCode::Enter => return self.enter(),
            KeyCode::BackTab => return self.next_mode(),
            KeyCode::PageUp => self.page_up(),
            KeyCode::PageDown => self.page_down(),
            // A key that is held down was meant for what was shown when it was pressed.
            KeyCode::Char(c) if !is_control && self.input.is_empty() && key.kind == KeyEventKind::Press => {
                if let Some(action) = self.shortcut(c) {
                    return action;
                }
                self.input.key(key, &[]);
            }
            _ => {
                let said = self.conversation.said();
                self.input.key(key, &said);
            }
        }
        Action::None
    }

    /// Scrolls up: first the call that waits, and then the conversation above it.
    fn page_up(&mut self) {
        match &mut self.shown {
            Some(shown) if shown.above > 0 => shown.above = shown.above.saturating_sub(PAGE),
            _ => self.scroll += PAGE,
        }
    }

    fn page_down(&mut self) {
        match &mut self.shown {
            Some(shown) if self.scroll == 0 && shown.below > 0 => shown.above += PAGE.min(shown.below),
            _ => self.scroll = self.scroll.saturating_sub(PAGE),
        }
    }

    /// Aborts the turn; without one, or at the second time, leaves.
    fn interrupt(&mut self) -> Action {
        if self.is_leaving {
            return Action::Leave;
        }
        self.is_leaving = true;
        if self.conversation.activity == Activity::Idle { Action::None } else { Action::Send(Request::Abort) }
    }

    /// Resolves the first call that waits, if the key is one of those that it accepts.
    fn shortcut(&mut self, key: char) -> Option<Action> {
        let wait = self.conversation.waits.first().filter(|_| self.can_decide())?;
        let is_key = match wait.call.kind.as_str() {
            "approval" => "ynAC".contains(key),
            "plan" => "yn".contains(key),
            "question" if !wait.is_multi() => {
                key.to_digit(10).is_some_and(|digit| (1..=wait.options().len()).contains(&(digit as usize)))
            }
            _ => false,
        };
        let resolution = wait.read(&key.to_string()).filter(|_| is_key)?;
        let request = Request::Resolve(Box::new(wait.clone()), resolution);
        self.is_deciding = true;
        Some(Action::Send(request))
    }

    /// Sends what was written: a command, an answer to what waits, or a message.
    fn enter(&mut self) -> Action {
        let text = self.input.text();
        if text.trim().is_empty() {
            self.input.take();
            return Action::None;
        }
        self.error = None;
        if let Some(action) = self.command(text.trim()) {
            self.input.take();
            self.scroll = 0;
            return action;
        }
        let first = self.conversation.waits.first();
        if first.is_some() && !self.can_decide() {
            // The text may be meant for something else than the call that has just appeared.
            return Action::None;
        }
        let resolved = first.and_then(|wait| Some((wait.clone(), wait.read(&text)?)));
        self.input.take();
        self.scroll = 0;
        Action::Send(match resolved {
            Some((wait, resolution)) => {
                self.is_deciding = true;
                Request::Resolve(Box::new(wait), resolution)
            }
            None => Request::Message(text),
        })
    }

    /// Reads a command. A text that begins with another word is a message.
    fn command(&mut self, text: &str) -> Option<Action> {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let request = match (name, rest) {
            ("/quit", _) => return Some(Action::Leave),
            ("/abort", _) => Request::Abort,
            ("/compact", _) => Request::Compact,
            ("/mode" | "/model" | "/steer" | "/drop", "") => {
                self.error = Some(format!("{name} needs a value"));
                return Some(Action::None);
            }
            ("/mode", mode) => Request::Mode(mode.to_owned()),
            ("/model", model) => Request::Model(model.to_owned()),
            ("/steer", text) => Request::Steer(text.to_owned()),
            ("/drop", number) => {
                let at = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                match at.and_then(|at| self.conversation.queue.get(at)) {
                    Some(turn) => Request::Drop(turn.clone()),
                    None => {
                        self.error = Some("the queue has no message with this number".into());
                        return Some(Action::None);
                    }
                }
            }
            _ => return None,
        };
        Some(Action::Send(request))
    }

    fn next_mode(&self) -> Action {
        let current = self.modes.iter().position(|mode| Some(mode) == self.conversation.mode.as_ref());
        let next = current.map_or(0, |at| at + 1) % self.modes.len().max(1);
        match self.modes.get(next) {
            Some(mode) => Action::Send(Request::Mode(mode.clone())),
            None => Action::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::shown::READING, *};
    use crate::{waits::Resolution, wire::Received};
    use serde_json::json;

    fn app() -> App {
        App::new("s", "default", vec!["build".into(), "plan".into()])
    }

    fn press(app: &mut App, code: KeyCode, modifiers: KeyModifiers) -> Action {
        app.handle(&TerminalEvent::Key(KeyEvent::new(code, modifiers)))
    }

    fn write(app: &mut App, text: &str) -> Action {
        for c in text.chars() {
            assert_eq!(press(app, KeyCode::Char(c), KeyModifiers::NONE), Action::None, "{text}");
        }
        press(app, KeyCode::Enter, KeyModifiers::NONE)
    }

    fn waiting(app: &mut App, kind: &str, payload: serde_json::Value) {
        let call = json!({"call_id": "c", "kind": kind, "name": "tool", "payload": payload});
        let event = json!({"type": "turn.waiting", "turn": "t", "pending": [call]});
        app.conversation.apply(&Received::parse(&event.to_string()).unwrap());
    }

    /// Shows a call until the user has read it.
    fn read(app: &mut App) {
        let now = Instant::now();
        app.show(now);
        app.show(now + READING);
    }

    #[test]
    fn text_is_a_message_or_a_command() {
        let mut app = app();
        assert_eq!(write(&mut app, "hi"), Action::Send(Request::Message("hi".into())));
        assert_eq!(write(&mut app, "/mode plan"), Action::Send(Request::Mode("plan".into())));
        assert_eq!(write(&mut app, "/steer stop that"), Action::Send(Request::Steer("stop that".into())));
        assert_eq!(write(&mut app, "/say hi"), Action::Send(Request::Message("/say hi".into())));
        assert_eq!(write(&mut app, "/drop 1"), Action::None);
        assert_eq!(app.error.as_deref(), Some("the queue has no message with this number"));
        assert_eq!(write(&mut app, "/quit"), Action::Leave);
        assert_eq!(write(&mut app, "  "), Action::None);
    }

    fn resolve(app: &App, resolution: Resolution) -> Request {
        Request::Resolve(Box::new(app.conversation.waits[0].clone()), resolution)
    }

    #[test]
    fn a_call_takes_a_key_or_a_text() {
        let payload = json!({"options": [{"label": "red"}]});
        let reason = || Resolution::Decline(Some("too risky".into()));
        for (kind, keys, resolution) in [
            ("approval", "y", Resolution::Approve),
            ("approval", "A", Resolution::AlwaysTool),
            ("question", "1", Resolution::Answer("red".into())),
        ] {
            let mut app = app();
            waiting(&mut app, kind, payload.clone());
            read(&mut app);
            let pressed = press(&mut app, KeyCode::Char(keys.chars().next().unwrap()), KeyModifiers::NONE);
            assert_eq!(pressed, Action::Send(resolve(&app, resolution)), "{keys}");
        }
        for (kind, resolution) in
            [("approval", reason()), ("question", Resolution::Answer("too risky".into()))]
        {
            let mut app = app();
            waiting(&mut app, kind, payload.clone());
            read(&mut app);
            assert_eq!(write(&mut app, "too risky"), Action::Send(resolve(&app, resolution)));
        }
        // The first letter of a reason may look like a key.
        let mut app = app();
        waiting(&mut app, "approval", json!(null));
        read(&mut app);
        let declined = Resolution::Decline(Some("can it wait?".into()));
        assert_eq!(write(&mut app, "can it wait?"), Action::Send(resolve(&app, declined)));
    }

    #[test]
    fn keys_that_were_pressed_before_a_call_was_read_do_not_decide_it() {
        let mut app = app();
        waiting(&mut app, "approval", json!(null));
        app.show(Instant::now());
        assert_eq!(write(&mut app, "y"), Action::None);
        assert_eq!(app.input.text(), "y");
        app.input.take();
        read(&mut app);
        let key = KeyEvent::new_with_kind(KeyCode::Char('y'), KeyModifiers::NONE, KeyEventKind::Repeat);
        assert_eq!(app.handle(&TerminalEvent::Key(key)), Action::None);
    }

    #[test]
    fn a_decision_on_its_way_is_the_only_one() {
        let mut app = app();
        waiting(&mut app, "approval", json!(null));
        read(&mut app);
        let request = resolve(&app, Resolution::Approve);
        assert_eq!(press(&mut app, KeyCode::Char('y'), KeyModifiers::NONE), Action::Send(request.clone()));
        assert_eq!(press(&mut app, KeyCode::Char('y'), KeyModifiers::NONE), Action::None);
        app.input.take();
        app.failed(&request, &Error::Waiting);
        assert_eq!(press(&mut app, KeyCode::Char('y'), KeyModifiers::NONE), Action::Send(request.clone()));
        app.done(&request, None);
        assert!(app.conversation.waits.is_empty());
    }

    #[test]
    fn a_refused_text_returns_into_the_input() {
        let mut app = app();
        let sent = Request::Message("hello".into());
        assert_eq!(write(&mut app, "hello"), Action::Send(sent.clone()));
        press(&mut app, KeyCode::Char('x'), KeyModifiers::NONE);
        app.failed(&sent, &Error::Waiting);
        assert_eq!(app.input.text(), "hello\nx");
    }

    #[test]
    fn ctrl_c_aborts_and_then_leaves() {
        let mut app = app();
        let interrupt = |app: &mut App| press(app, KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(interrupt(&mut app), Action::None);
        assert_eq!(interrupt(&mut app), Action::Leave);
        press(&mut app, KeyCode::Home, KeyModifiers::NONE);
        waiting(&mut app, "approval", json!(null));
        assert_eq!(interrupt(&mut app), Action::Send(Request::Abort));
        assert_eq!(interrupt(&mut app), Action::Leave);
    }

    #[test]
    fn shift_tab_goes_through_the_modes() {
        let mut app = app();
        for (mode, next) in [("build", "plan"), ("plan", "build")] {
            app.conversation.mode = Some(mode.into());
            let pressed = press(&mut app, KeyCode::BackTab, KeyModifiers::SHIFT);
            assert_eq!(pressed, Action::Send(Request::Mode(next.into())));
        }
    }
}
