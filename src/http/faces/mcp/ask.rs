//! The part of the protocol that runs in a session: a call that asks its agent, the client's answers to forms, and
//! cancellation.

use super::super::children::flattened;
use super::super::exchange::{Exchange, New, renamed};
use super::super::transcript::Transcript;
use super::message::{Asked, Era, Notice, Reply};
use super::rpc::Failure;
use super::tools::{self, AskArgs};
use super::version::PRIMED;
use super::writer::{CallFormat, Writer};
use super::{calls, elicitation, message, rpc, task};
use crate::agent::SessionHost;
use crate::http::request::RequestExt;
use crate::http::response::{self, Response};
use crate::http::session::call::Call;
use crate::http::session::message::MessageBody;
use crate::http::session::subscription::{ResponseMode, TurnFormat, TurnSubscription};
use crate::http::session::{feed, turns};
use crate::session::hub::{ByteReceiver, Interrupted, Projection};
use crate::types::{AgentId, ErrorCode, Problem, Scope, SessionId, TurnId};
use futures::{
    FutureExt, StreamExt, TryStreamExt,
    channel::oneshot,
    future::{LocalBoxFuture, ready},
    stream,
};
use http::StatusCode;
use serde_json::Value;
use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    task::Poll,
};

/// A turn that the client has been asked about: `requestState`. It is not signed, because it permits nothing: the
/// credential decides which sessions the caller reaches, and all turns of these the caller may read and answer anyway.
pub(super) struct RequestState {
    pub session: SessionId,
    pub turn: TurnId,
}

impl RequestState {
    /// Reads the state that a client returns; `None` without one.
    ///
    /// # Errors
    /// `validation_failed` for a text that is not a state.
    pub fn of(asked: &Asked) -> Result<Option<Self>, Problem> {
        let Some(state) = asked.params.get("requestState") else { return Ok(None) };
        let parsed = || {
            let (session, turn) = state.as_str()?.split_once('/')?;
            Some(Self { session: SessionId::parse(session)?, turn: turn.into() })
        };
        parsed().map(Some).ok_or_else(|| Problem::field("/requestState", "not a state of this server"))
    }
}

/// Handles `tools/call` of a tool that asks this agent.
pub(super) async fn call(call: &Call<'_>, asked: &Asked, agent: &AgentId) -> Result<Response, Problem> {
    match run(call, asked, agent).await {
        Ok(response) => Ok(response),
        Err(problem) => {
            let problem = renamed(problem, &[("/content", "/message")]);
            rpc::respond(asked, call.request_id, tools::failed(problem).map_err(Failure::Problem))
        }
    }
}

async fn run(call: &Call<'_>, asked: &Asked, agent: &AgentId) -> Result<Response, Problem> {
    let user = call.named_user(None)?;
    let session = call.find(user.as_deref())?;
    // The model that reads the result learns which tool to call.
    if let Some(session) = session
        && session.state().meta.agent != *agent
    {
        let own = &session.state().meta.agent;
        let detail = format!("the session belongs to another agent; call {}", tools::asks(own));
        return Err(Problem::field("/session", detail));
    }
    let exchange = Exchange { user, agent: Some(agent.to_string()), model: None, is_ephemeral: false };
    let Some(state) = RequestState::of(asked)? else {
        let (AskArgs { message, .. }, _) = AskArgs::read(asked)?;
        let own = call_format(call, asked);
        let message =
            MessageBody { content: Some(message), request: own.label.clone(), ..MessageBody::default() };
        let format: Rc<dyn TurnFormat> = match asked.reads_tasks() {
            true => Rc::new(task::Created::new(call, asked)),
            false => Rc::new(Format::new(call, own)),
        };
        return exchange
            .run(call, Transcript::default(), New::Message(Vec::new()), message, "", format)
            .await;
    };
    let session = session.ok_or_else(|| Problem::not_found("session"))?;
    let format = Rc::new(Format::new(call, call_format(call, asked)));
    let pending = flattened(&session.pending()?);
    let responses = asked.params.get("inputResponses");
    let result = |id: &str| responses.and_then(|responses| responses.get(id));
    let own = pending.iter().filter(|call| call.turn == state.turn);
    let given = own.filter_map(|call| elicitation::given(call, Some(result(&call.call_id)?)));
    let given: Vec<_> = given.collect();
    if given.is_empty() {
        return TurnSubscription::current(call, session, &state.turn, format)?.respond(session).await;
    }
    exchange.run(call, Transcript::default(), New::Results(given), MessageBody::default(), "", format).await
}

fn call_format(call: &Call<'_>, asked: &Asked) -> CallFormat {
    let accept = call.request.header("accept").unwrap_or_default();
    let streams = accept.contains("text/event-stream");
    let (is_modern, elicits, label) = match &asked.era {
        Era::Modern { elicits, .. } => (true, *elicits, None),
        Era::Legacy { handshake } => {
            let elicits = handshake.as_ref().is_some_and(|handshake| handshake.elicits);
            let label = handshake.as_ref().map(|handshake| calls::name(handshake, &asked.id));
            // Without a stream there is no way to ask.
            (false, elicits && streams, label)
        }
    };
    CallFormat {
        id: asked.id.clone(),
        is_modern,
        label,
        progress_token: asked.progress_token().cloned(),
        elicits,
        may_approve: call.principal.scopes.allow(Scope::Approve),
        streams,
        session: call.session_id.clone(),
        after: None,
    }
}

/// Handles `notifications/cancelled` of a legacy client: ends the turn of the request, which gets no response.
pub(super) async fn cancel(call: &Call<'_>, notice: &Notice) -> Result<Response, Problem> {
    let user = call.named_user(None)?;
    if let (Some(session), Some((handshake, id))) = (call.find(user.as_deref())?, notice.cancels()) {
        let name = calls::name(handshake, id);
        if let Some(turn) = session.turn_of_request(&name)? {
            session.hub().close_responses(&name);
            turns::end(call.host, &turn).await?;
        }
    }
    Ok(response::empty(StatusCode::ACCEPTED))
}

/// Handles a legacy client's answer to a form. The response to the call goes on.
pub(super) async fn answer(call: &Call<'_>, call_id: &str, reply: &Reply) -> Result<Response, Problem> {
    let session = call.session_of(None)?;
    let pending = flattened(&session.pending()?);
    let waiting = pending.iter().find(|call| *call.call_id == *call_id);
    if let Some(waiting) = waiting {
        // A form that is not filled in is dismissed, and so is one with an invalid answer: the protocol has no way to ask
        // again, and the turn would wait for ever.
        let dismissed = || elicitation::given(waiting, None);
        let given = elicitation::given(waiting, reply.result.as_ref()).or_else(dismissed);
        let Some(given) = given else { return Ok(response::empty(StatusCode::ACCEPTED)) };
        match (given.send(call, session, "", ResponseMode::Receipt).await, dismissed()) {
            (Err(problem), Some(dismissed)) if problem.code == ErrorCode::ValidationFailed => {
                dismissed.send(call, session, "", ResponseMode::Receipt).await?;
            }
            (sent, _) => drop(sent?),
        }
    }
    Ok(response::empty(StatusCode::ACCEPTED))
}

/// The format of the response to a call.
pub(super) struct Format {
    call: CallFormat,
    /// Whether a stream begins with an event that has only an id, so that it can be continued from there. A continued
    /// stream, too, because the official client forgets the id that it has sent.
    is_primed: bool,
    host: Weak<SessionHost>,
    /// The response to a client that reads no stream.
    written: Rc<RefCell<Option<Value>>>,
}

impl Format {
    pub fn new(call: &Call<'_>, format: CallFormat) -> Self {
        let is_primed = call.request.header(message::VERSION_HEADER) == Some(PRIMED);
        Self { call: format, is_primed, host: Rc::downgrade(call.host), written: Rc::default() }
    }
}

impl TurnFormat for Format {
    fn projection(&self, turn: &TurnId) -> Box<dyn Projection> {
        Box::new(Writer::new(self.call.clone(), turn, 0, Rc::clone(&self.written)))
    }

    fn replay(&self, turn: &TurnId, waits: u32) -> Box<dyn Projection> {
        Box::new(Writer::new(self.call.clone(), turn, waits, Rc::clone(&self.written)))
    }

    fn respond<'a>(
        &'a self,
        turn: &'a TurnId,
        written: ByteReceiver,
    ) -> LocalBoxFuture<'a, Result<Response, Problem>> {
        async move {
            if self.call.streams {
                let messages = match self.call.is_modern {
                    true => self.cancels(turn, written),
                    false if self.is_primed => {
                        let first = self.call.event_id(turn, self.call.after.unwrap_or_default());
                        let first = format!("id: {first}\ndata:\n\n").into();
                        stream::once(ready(Ok(first))).chain(written).boxed_local()
                    }
                    false => written,
                };
                return Ok(feed::response(messages, "text/event-stream"));
            }
            let interrupted = |_| {
                let detail = format!("turn {turn} was interrupted; its session continues it");
                Problem::new(ErrorCode::Unavailable, detail)
            };
            written.try_for_each(|_| ready(Ok(()))).await.map_err(interrupted)?;
            let message = self.written.borrow_mut().take();
            response::json(StatusCode::OK, &message.ok_or_else(|| interrupted(Interrupted))?)
        }
        .boxed_local()
    }
}

impl Format {
    /// Ends the turn if the client closes the stream before its end: so a modern client cancels its request.
    fn cancels(&self, turn: &TurnId, mut messages: ByteReceiver) -> ByteReceiver {
        let (sender, left) = oneshot::channel::<()>();
        if let Some(host) = self.host.upgrade() {
            let (own, turn) = (Weak::clone(&self.host), turn.clone());
            host.spawn(async move {
                if left.await.is_err()
                    && let Some(host) = own.upgrade()
                {
                    // A turn that cannot be ended now continues, as after any lost connection.
                    let _ = turns::end_running(&host, &turn).await;
                }
            });
        }
        let mut sender = Some(sender);
        let messages = stream::poll_fn(move |task| {
            let polled = messages.poll_next_unpin(task);
            if matches!(polled, Poll::Ready(None | Some(Err(_))))
                && let Some(sender) = sender.take()
            {
                // The task may have ended with the session, which has the same effect.
                let _ = sender.send(());
            }
            polled
        });
        messages.boxed_local()
    }
}
