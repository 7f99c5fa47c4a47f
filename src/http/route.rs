//! A row of the route table: method, path, required scope and handler.

use super::face::{Face, WriteProblem};
use super::faces::socket::SocketFormat;
use super::gateway::{GatewayCall, TenantCall};
use super::pattern::{Params, matches};
use super::response::{self, Response};
use super::session::call::{Call, SessionRequest};
use crate::agent::SessionHost;
use crate::types::{Problem, Scope, SessionId};
use futures::future::LocalBoxFuture;
use http::Method;
use std::rc::Rc;

/// The future response of a handler.
pub type Responding<'a> = LocalBoxFuture<'a, Result<Response, Problem>>;

/// Handles a request of the operator, or of any caller, in the gateway.
pub type GatewayHandler = for<'a> fn(&'a GatewayCall<'a>) -> Responding<'a>;
/// Handles a request of a tenant in the gateway.
pub type TenantHandler = for<'a> fn(&'a TenantCall<'a>) -> Responding<'a>;
/// Handles a request of another protocol in the gateway, or finds out which session has to handle it.
pub type SplitHandler = for<'a> fn(&'a TenantCall<'a>) -> LocalBoxFuture<'a, Result<Split, Problem>>;
/// Handles a request in the object of a session.
pub type SessionHandler = for<'a> fn(&'a Call<'a>) -> Responding<'a>;
/// Handles a request in the object of a session, without reading the session first.
pub type UnreadHandler = for<'a> fn(&'a Rc<SessionHost>, &'a SessionRequest) -> Responding<'a>;

/// Converts an async function into the function pointer of a [`Handler`].
macro_rules! run {
    ($handler:path) => {
        |call| Box::pin($handler(call))
    };
}
pub(super) use run;

pub(super) const GET: Method = Method::GET;
pub(super) const POST: Method = Method::POST;
pub(super) const PUT: Method = Method::PUT;
pub(super) const PATCH: Method = Method::PATCH;
pub(super) const DELETE: Method = Method::DELETE;

/// Where a request of another protocol is handled.
pub enum Split {
    /// In the gateway.
    Response(Response),
    /// In the session that the request's face reads from it.
    Forward,
    /// In this session. The request starts no turn.
    ForwardTo(SessionId),
}

impl From<Option<Response>> for Split {
    fn from(response: Option<Response>) -> Self {
        response.map_or(Self::Forward, Self::Response)
    }
}

/// The function that handles a route, where it runs, and the scope that a caller needs.
pub enum Handler {
    /// Runs in the gateway; needs no credential.
    Public(GatewayHandler),
    /// Runs in the gateway; needs the operator's key.
    Operator(GatewayHandler),
    /// Runs in the gateway for one tenant.
    Tenant(Scope, TenantHandler),
    /// Runs in the object of the session that `{id}` names.
    Session(Scope, SessionHandler),
    /// Runs in the object of a new session, whose id the gateway chooses.
    NewSession(Scope, SessionHandler),
    /// Runs in the object of the session that the request's protocol names, or of a new one.
    Face(Scope, &'static Face, SessionHandler),
    /// Runs in the gateway, or like `Face` if the gateway's handler forwards the request.
    Split(Scope, &'static Face, SplitHandler, SessionHandler),
    /// Opens a WebSocket of another protocol. Each of its requests has credentials of its own.
    Socket(&'static dyn SocketFormat),
    /// Like `Session`, but the session is not read first, so that an unreadable session can be deleted.
    Unread(Scope, UnreadHandler),
}

/// One row of the route table.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path pattern; see [`super::pattern::matches`].
    pub path: &'static str,
    /// The handler.
    pub handler: Handler,
    /// Writes problems of the route.
    pub write_problem: WriteProblem,
    /// Whether the response to a request without a valid credential names the metadata of `oauth.rs`.
    pub names_provider: bool,
    /// Whether the scope `read` is enough for some requests of the route. Its handler checks the scope of the others.
    pub serves_readers: bool,
    /// Whether a `?ticket=` is accepted in place of a key.
    pub accepts_ticket: bool,
    /// Whether the path may end with a slash, because clients of the protocol append one to the address.
    pub allows_slash: bool,
    /// Whether a request with an Idempotency-Key runs once and its response is stored. A route without this
    /// is read-only, or its handler stores the response itself.
    pub once: bool,
    /// Whether a request creates the session if there is none.
    pub creates_session: bool,
    /// Whether a request may start a turn.
    pub starts_turn: bool,
    /// Whether the handler of a session's GET also handles HEAD. Most of them stream.
    pub handles_head: bool,
}

impl Route {
    /// Creates a row that neither accepts tickets nor stores responses.
    pub const fn new(method: Method, path: &'static str, handler: Handler) -> Self {
        Self {
            method,
            path,
            handler,
            write_problem: response::problem,
            names_provider: false,
            serves_readers: false,
            accepts_ticket: false,
            allows_slash: false,
            once: false,
            creates_session: false,
            starts_turn: false,
            handles_head: false,
        }
    }

    /// Writes problems in the format of another protocol.
    pub const fn problems(mut self, write: WriteProblem) -> Self {
        self.write_problem = write;
        self
    }

    /// Names the metadata with which a client finds the identity provider.
    pub const fn names_provider(mut self) -> Self {
        self.names_provider = true;
        self
    }

    /// Also serves callers with the scope `read`, as far as the handler allows it.
    pub const fn serves_readers(mut self) -> Self {
        self.serves_readers = true;
        self
    }

    /// Accepts a `?ticket=` in place of a key.
    pub const fn accepts_ticket(mut self) -> Self {
        self.accepts_ticket = true;
        self
    }

    /// Also matches the path with a slash at the end.
    pub const fn allows_slash(mut self) -> Self {
        self.allows_slash = true;
        self
    }

    /// Creates the session if there is none.
    pub const fn creates_session(mut self) -> Self {
        self.creates_session = true;
        self
    }

    /// Marks that a request may start a turn.
    pub const fn starts_turn(mut self) -> Self {
        self.starts_turn = true;
        self
    }

    /// Also handles HEAD.
    pub const fn handles_head(mut self) -> Self {
        self.handles_head = true;
        self
    }

    /// Stores the response of a request with an Idempotency-Key.
    pub const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Returns the parameters of a percent-encoded path, if the path is the route's.
    pub fn matches(&self, path: &str) -> Option<Params> {
        let without_slash = path.strip_suffix('/').filter(|_| self.allows_slash);
        matches(self.path, without_slash.unwrap_or(path))
    }
}

/// A route of another protocol that posts a message.
pub const fn face(
    method: Method,
    path: &'static str,
    scope: Scope,
    face: &'static Face,
    handler: SessionHandler,
) -> Route {
    about(method, path, scope, face, handler).creates_session().starts_turn()
}

/// A route of another protocol about something that exists.
pub const fn about(
    method: Method,
    path: &'static str,
    scope: Scope,
    face: &'static Face,
    handler: SessionHandler,
) -> Route {
    Route::new(method, path, Handler::Face(scope, face, handler)).problems(face.problem)
}

/// A route of another protocol, whose requests the gateway or a session handles.
pub const fn split(
    method: Method,
    path: &'static str,
    scope: Scope,
    face: &'static Face,
    at_gateway: SplitHandler,
    in_session: SessionHandler,
) -> Route {
    Route::new(method, path, Handler::Split(scope, face, at_gateway, in_session))
        .problems(face.problem)
        .creates_session()
        .starts_turn()
}

/// The route of a request, and the parameters of its path.
pub struct RouteMatch {
    /// The row of the table.
    pub route: &'static Route,
    /// The parameters of the path.
    pub params: Params,
}
