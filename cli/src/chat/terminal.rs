//! The conversation in a terminal.

use super::{
    app::{Action, App},
    conversation::Activity,
    draw::draw,
    requests::{Change, Request},
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
use std::{
    io,
    pin::pin,
    time::{Duration, Instant},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

/// Time between two signs of activity.
const TICK: Duration = Duration::from_millis(120);
/// Maximum time for which the last requests delay the end of the chat.
const LEAVING: Duration = Duration::from_secs(5);

/// What arrives from the server.
enum News {
    Event(Box<Received>),
    Lost(Error),
    Connected,
    /// The outcome of a request of the user.
    Done(Request, Result<Option<Change>>),
    /// The server refuses to continue the stream.
    Ended(Error),
}

/// Runs the chat until the user leaves. Beside a runner, it leaves the calls of local tools to it.
///
/// # Errors
/// What the server refuses before the chat begins, and a terminal that fails.
pub(crate) async fn run(api: &Api, session: &str, is_served: bool) -> Result<()> {
    let state: Session = api.get(&format!("/v1/sessions/{}", segment(session))).json().await?;
    let mut app = App::new(session, &state.agent, modes(api, &state.agent).await);
    app.conversation.is_served = is_served;
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
    let mut requests = Requests::new(api, &app.session, sender);
    let mut keys = EventStream::new();
    let mut ticks = tokio::time::interval(TICK);
    let mut terminated = pin!(terminated());
    let result = loop {
        app.show(Instant::now());
        terminal.draw(|frame| draw(frame, app))?;
        app.frame += 1;
        let is_moving = app.conversation.activity == Activity::Running
            || app.shown.as_ref().is_some_and(|shown| !shown.is_read);
        tokio::select! {
            key = keys.next() => match key {
                Some(event) => match app.handle(&event?) {
                    Action::None => {}
                    Action::Leave => break Ok(()),
                    Action::Send(request) => requests.send(request),
                },
                None => break Ok(()),
            },
            Some(first) = news.recv() => {
                if let Err(error) = receive(app, first, &mut news) {
                    break Err(error);
                }
            }
            () = &mut terminated => break Err(Error::Interrupted),
            _ = ticks.tick(), if is_moving => {}
        }
    };
    follower.abort();
    let ended = requests.end().await;
    // The chat can no longer show a request that fails now.
    result.and(ended).and_then(|()| last_failure(&mut news))
}

/// The requests of the user, in the order in which they were made.
struct Requests {
    sender: UnboundedSender<Request>,
    api: Api,
    session: String,
    news: UnboundedSender<News>,
    tasks: JoinSet<()>,
}

impl Requests {
    fn new(api: &Api, session: &str, news: UnboundedSender<News>) -> Self {
        let (sender, mut queue) = unbounded_channel();
        let mut requests =
            Self { sender, api: api.clone(), session: session.to_owned(), news, tasks: JoinSet::new() };
        let (api, session, news) = (api.clone(), session.to_owned(), requests.news.clone());
        requests.tasks.spawn(async move {
            while let Some(request) = queue.recv().await {
                perform(request, &api, &session, &news).await;
            }
        });
        requests
    }

    fn send(&mut self, request: Request) {
        if request == Request::Abort {
            // What it aborts must not wait for requests that are repeated.
            let (api, session, news) = (self.api.clone(), self.session.clone(), self.news.clone());
            self.tasks.spawn(async move { perform(request, &api, &session, &news).await });
        } else {
            // The queue ends only after this sender.
            let _ = self.sender.send(request);
        }
    }

    /// Waits until the requests have their responses, but not for a server that cannot be reached.
    async fn end(mut self) -> Result<()> {
        drop(self.sender);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let ended = tokio::time::timeout(LEAVING, all).await;
        ended.map_err(|_| Error::Incomplete("the last request may not have reached the server".into()))
    }
}

async fn perform(request: Request, api: &Api, session: &str, news: &UnboundedSender<News>) {
    let result = request.send(api, session).await;
    // The chat may have ended in the meantime.
    let _ = news.send(News::Done(request, result));
}

/// Adds what has arrived, all of it at once: a long history is drawn once, and not after each event.
fn receive(app: &mut App, first: News, news: &mut UnboundedReceiver<News>) -> Result<()> {
    let mut next = Some(first);
    while let Some(item) = next {
        match item {
            News::Event(event) => {
                app.lost = None;
                app.conversation.apply(&event);
            }
            News::Lost(error) => app.lost = Some(error.to_string()),
            News::Connected => app.lost = None,
            News::Done(request, Ok(change)) => app.done(&request, change),
            News::Done(request, Err(error)) => app.failed(&request, &error),
            News::Ended(error) => return Err(error),
        }
        next = news.try_recv().ok();
    }
    Ok(())
}

/// Returns the first failure among the outcomes of the last requests.
fn last_failure(news: &mut UnboundedReceiver<News>) -> Result<()> {
    while let Ok(item) = news.try_recv() {
        if let News::Done(_, Err(error)) = item {
            return Err(error);
        }
    }
    Ok(())
}

async fn follow(mut events: Follow, sender: UnboundedSender<News>) {
    loop {
        let news = match events.next().await {
            Ok(Step::Event(event)) => News::Event(event),
            Ok(Step::Lost(error)) => News::Lost(error),
            Ok(Step::Connected) => News::Connected,
            Ok(Step::Idle) => return,
            Err(error) => {
                let _ = sender.send(News::Ended(error));
                return;
            }
        };
        if sender.send(news).is_err() {
            return;
        }
    }
}
