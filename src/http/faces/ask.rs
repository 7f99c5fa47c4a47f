//! The example of docs/extending.md: a face that streams the text of a reply. Only its tests compile it.

use super::exchange::{Exchange, New};
use super::sse;
use super::transcript::Transcript;
use crate::http::body;
use crate::http::face::{Face, Target};
use crate::http::openapi::{Foreign, Operation, POSTS};
use crate::http::owner::session_id;
use crate::http::pattern::Params;
use crate::http::request::Request;
use crate::http::response::{self, Response};
use crate::http::route::{POST, Route, face, run};
use crate::http::session::call::Call;
use crate::http::session::feed;
use crate::http::session::message::MessageBody;
use crate::http::session::subscription::TurnFormat;
use crate::session::frame::Event;
use crate::session::hub::{ByteReceiver, Projection};
use crate::types::{Delta, Problem, Scope, TurnId};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;

/// The routes.
pub static ROUTES: &[Route] = &[face(POST, "/ask", Scope::Chat, &FACE, run!(ask))];

/// Describes the routes for the OpenAPI document.
#[cfg(not(target_family = "wasm"))]
pub(in crate::http) fn operations() -> Vec<Operation> {
    let example = json!({ "session": "chat-1", "text": "Hello" });
    let ask = Operation::post("/ask", "ask", "Asks the agent, and streams the text of its reply.");
    vec![ask.body::<Foreign>(example).streams("The text.").fails(POSTS)]
}

static FACE: Face = Face { target, problem: response::problem };

#[derive(Deserialize)]
struct Ask {
    session: String,
    text: String,
}

/// Reads which session, agent and user a request concerns.
fn target(request: &Request, _params: &Params) -> Result<Target, Problem> {
    let Ask { session, .. } = body::json(request)?;
    Ok(Target { session: Some(session_id(&session, "/session")?), ..Target::default() })
}

/// `POST /ask`.
async fn ask(call: &Call<'_>) -> Result<Response, Problem> {
    let Ask { text, .. } = body::json(call.request)?;
    let message = MessageBody { content: Some(text), ..MessageBody::default() };
    let exchange = Exchange { user: call.named_user(None)?, agent: None, model: None, is_ephemeral: false };
    exchange.run(call, Transcript::default(), New::Message(Vec::new()), message, "", Rc::new(Text)).await
}

struct Text;

impl TurnFormat for Text {
    fn projection(&self, _turn: &TurnId) -> Box<dyn Projection> {
        Box::new(Text)
    }

    /// For a request that is repeated with its Idempotency-Key.
    fn replay(&self, turn: &TurnId, _waits: u32) -> Box<dyn Projection> {
        self.projection(turn)
    }

    fn respond<'a>(
        &'a self,
        _turn: &'a TurnId,
        events: ByteReceiver,
    ) -> LocalBoxFuture<'a, Result<Response, Problem>> {
        ready(Ok(feed::response(events, "text/event-stream"))).boxed_local()
    }
}

impl Projection for Text {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        if let Event::Delta(Delta::Text { delta, .. }) = event {
            sse::write(&json!(delta), out);
        }
    }
}

#[test]
fn the_example_is_a_face() {
    let [operation] = &operations()[..] else { panic!("one operation") };
    assert_eq!((ROUTES[0].path, &ROUTES[0].method), (operation.path, &operation.method));
    let mut out = Vec::new();
    let delta = Delta::Text { id: "m".into(), delta: "Hello".into() };
    Text.write(Event::Delta(&delta), &mut out);
    assert_eq!(out, b"data: \"Hello\"\n\n");
}
