//! The conversation in a terminal.

use super::{
    app::{Action, App},
    conversation::Activity,
    draw::draw,
    requests::Change,
};
use crate::{
    api::{Api, segment},
    error::{Error, Result},
    interrupt::terminated,
    stream::{Follow, Step},
    wire::{Received, Session},
};
use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste, EventStream},
    execute,
};
use futures::StreamExt as _;
use ratatui::DefaultTerminal;
use serde_json::Value;
use std::{io, pin::pin, time::Duration};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Time between two signs of activity.
const TICK: Duration = Duration::from_millis(120);

/// What arrives from the server.
enum News {
    Event(Box<Received>),
    Lost(Error),
    Connected,
    /// What a request of the user has changed.
    Change(Change),
    /// A request, or the stream, was refused.
    Failed(Error),
}

/// Runs the chat until the user leaves.
///
/// # Errors
/// What the server refuses before the chat begins, and a terminal that fails.
pub(crate) async fn run(api: &Api, session: &str) -> Result<()> {
    let state: Session = api.get(&format!("/v1/sessions/{}", segment(session))).json().await?;
    let mut app = App::new(session, &state.agent, modes(api, &state.agent).await);
    app.conversation.mode = state.mode;
    app.conversation.model = state.model;
    app.conversation.queue = state.queue.into_iter().map(|queued| queued.turn).collect();
    let mut terminal = ratatui::try_init()?;
    let _ = execute!(io::stdout(), EnableBracketedPaste);
    let result = chat(api, &mut app, &mut terminal).await;
    let _ = execute!(io::stdout(), DisableBracketedPaste);
    ratatui::restore();
    result
}

/// Returns the modes of an agent. One that has none of its own has those of the deployment, as the default agent does.
async fn modes(api: &Api, agent: &str) -> Vec<String> {
    for agent in [agent, "default"] {
        let definition: Result<Value> = api.get(&format!("/v1/agents/{}", segment(agent))).json().await;
        let modes = definition.map(|definition| definition["modes"].clone()).unwrap_or_default();
        if let Some(modes) = modes.as_array() {
            return modes.iter().filter_map(|mode| mode["id"].as_str().map(str::to_owned)).collect();
        }
    }
    Vec::new()
}

async fn chat(api: &Api, app: &mut App, terminal: &mut DefaultTerminal) -> Result<()> {
    let (sender, mut news) = unbounded_channel();
    let follower = tokio::spawn(follow(Follow::new(api, &app.session, "0"), sender.clone()));
    let mut keys = EventStream::new();
    let mut ticks = tokio::time::interval(TICK);
    let mut terminated = pin!(terminated());
    let result = loop {
        terminal.draw(|frame| draw(frame, app))?;
        app.frame += 1;
        tokio::select! {
            key = keys.next() => match key {
                Some(event) => match app.handle(&event?) {
                    Action::None => {}
                    Action::Leave => break Ok(()),
                    Action::Send(request) => {
                        let (api, session, sender) = (api.clone(), app.session.clone(), sender.clone());
                        tokio::spawn(async move {
                            let news = match request.send(&api, &session).await {
                                Ok(change) => change.map(News::Change),
                                Err(error) => Some(News::Failed(error)),
                            };
                            // The chat may have ended in the meantime.
                            news.map(|news| sender.send(news));
                        });
                    }
                },
                None => break Ok(()),
            },
            Some(first) = news.recv() => receive(app, first, &mut news),
            () = &mut terminated => break Err(Error::Interrupted),
            _ = ticks.tick(), if app.conversation.activity == Activity::Running => {}
        }
    };
    follower.abort();
    result
}

/// Adds what has arrived, all of it at once: a long history is drawn once, and not after each event.
fn receive(app: &mut App, first: News, news: &mut UnboundedReceiver<News>) {
    let mut next = Some(first);
    while let Some(item) = next {
        match item {
            News::Event(event) => {
                app.lost = None;
                app.conversation.apply(&event);
            }
            News::Lost(error) => app.lost = Some(error.to_string()),
            News::Connected => app.lost = None,
            // An accepted message waits in the queue if a turn runs, or else its turn begins at once.
            News::Change(Change::Accepted(turn)) if app.conversation.activity != Activity::Idle => {
                app.conversation.enqueue(Some(turn));
            }
            News::Change(Change::Accepted(_)) => {}
            News::Change(Change::Dropped(turn)) => app.conversation.dequeue(Some(turn)),
            News::Failed(error) => app.error = Some(error.to_string()),
        }
        next = news.try_recv().ok();
    }
}

async fn follow(mut events: Follow, sender: UnboundedSender<News>) {
    loop {
        let news = match events.next().await {
            Ok(Step::Event(event)) => News::Event(event),
            Ok(Step::Lost(error)) => News::Lost(error),
            Ok(Step::Connected) => News::Connected,
            Ok(Step::Idle) => return,
            Err(error) => {
                let _ = sender.send(News::Failed(error));
                return;
            }
        };
        if sender.send(news).is_err() {
            return;
        }
    }
}
