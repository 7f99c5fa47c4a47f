//! The objects of other sessions in the same world.

use crate::stage::Stage;
use async_trait::async_trait;
use edge_harness::agent::SessionHost;
use edge_harness::http::{
    Body, Request, response,
    session::{self, call::SessionRequest},
};
use edge_harness::platform::in_memory::{ManualClock, MemorySessionStore};
use edge_harness::ports::{
    Clock, PeerError, PeerRequest, PeerResponse, Peers, ReaderRequest, SessionEraser, SessionReader,
    SessionResponse,
};
use edge_harness::types::{
    Acknowledgement, CallId, ChildStatus, Imported, Principal, Problem, SessionId, Snapshot, TenantId,
};
use futures::{StreamExt, TryStreamExt};
use http::{HeaderValue, Method};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

/// Creates the instance of a session on this disk.
type Make = Box<dyn Fn(&str, Rc<MemorySessionStore>) -> Rc<SessionHost>>;

/// All sessions of a world by id. An instance is created when it is first called.
#[derive(Default)]
pub struct Others {
    /// While set, no session can reach another.
    pub down: Cell<bool>,
    /// The next statuses of children whose response is lost: the parent handles the status.
    pub unanswered: Cell<u32>,
    /// Delay of a message between sessions, in milliseconds.
    pub delay: Cell<Duration>,
    pub clock: RefCell<Option<ManualClock>>,
    /// While set, every id leads to the session of this stage.
    pub stand_in: RefCell<Option<Rc<Stage>>>,
    make: RefCell<Option<Make>>,
    disks: RefCell<BTreeMap<SessionId, Rc<MemorySessionStore>>>,
    machines: RefCell<BTreeMap<SessionId, Rc<SessionHost>>>,
}

impl Others {
    /// Evicts all sessions; new instances are created like this.
    pub fn restart(&self, make: Make) {
        self.machines.borrow_mut().clear();
        *self.make.borrow_mut() = Some(make);
    }

    pub fn disk(&self, session: &str) -> Rc<MemorySessionStore> {
        Rc::clone(self.disks.borrow_mut().entry(session.into()).or_default())
    }

    pub fn host(&self, session: &str) -> Rc<SessionHost> {
        if let Some(host) = self.machines.borrow().get(session) {
            return Rc::clone(host);
        }
        let host = self.make.borrow().as_ref().expect("a world")(session, self.disk(session));
        self.machines.borrow_mut().insert(session.into(), Rc::clone(&host));
        host
    }

    /// Waits for the delay of a message.
    async fn travel(&self) {
        let clock = self.clock.borrow().clone().filter(|_| !self.delay.get().is_zero());
        if let Some(clock) = clock {
            clock.sleep(self.delay.get()).await;
        }
    }

    fn reach(&self, session: &str) -> Result<Rc<SessionHost>, PeerError> {
        if self.down.get() {
            return Err(PeerError("unreachable".into()));
        }
        let stand_in = self.stand_in.borrow().as_ref().map(|stage| stage.host());
        Ok(stand_in.unwrap_or_else(|| self.host(session)))
    }
}

#[async_trait(?Send)]
impl Peers for Others {
    async fn copy(&self, _: &TenantId, session: &SessionId, snapshot: Snapshot) -> Result<(), PeerError> {
        self.travel().await;
        self.reach(session)?.copy(&snapshot).map_err(peer_error)
    }

    async fn import(
        &self,
        _tenant: &TenantId,
        session: &SessionId,
        snapshot: Snapshot,
    ) -> Result<Imported, PeerError> {
        self.travel().await;
        let host = self.reach(session)?;
        host.import(snapshot).await.map_err(peer_error)
    }

    async fn cancel(
        &self,
        _tenant: &TenantId,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<ChildStatus, PeerError> {
        self.reach(session)?.cancel_task(session, call_id).map_err(peer_error)
    }

    async fn notify(
        &self,
        _tenant: &TenantId,
        session: &SessionId,
        status: ChildStatus,
    ) -> Result<Acknowledgement, PeerError> {
        let handled = self.reach(session)?.child_status(status).await.map_err(peer_error);
        match self.unanswered.get() {
            0 => handled,
            left => {
                self.unanswered.set(left - 1);
                Err(PeerError("the response was lost".into()))
            }
        }
    }

    async fn post(&self, session: &SessionId, request: PeerRequest) -> Result<PeerResponse, PeerError> {
        self.travel().await;
        let (host, PeerRequest { principal, id, path, body }) = (self.reach(session)?, request);
        let mut own = Request::new(body.into());
        *own.method_mut() = Method::POST;
        *own.uri_mut() = format!("/v1/sessions/{session}{path}").parse().unwrap();
        own.headers_mut().insert("prefer", HeaderValue::from_static("respond-async"));
        let asked = SessionRequest { principal, session: session.clone(), id, request: own };
        let response = session::respond(&host, &asked).await;
        let response = response.unwrap_or_else(|problem| response::problem(&problem, "req_1"));
        let status = response.status().as_u16();
        let retry_after_s =
            response.headers().get("retry-after").map(|s| s.to_str().unwrap().parse().unwrap());
        match response.into_body() {
            Body::Bytes(body) => Ok(PeerResponse { status, retry_after_s, body }),
            _ => panic!("no body"),
        }
    }
}

#[async_trait(?Send)]
impl SessionReader for Others {
    async fn send(
        &self,
        principal: &Principal,
        session: &SessionId,
        request: ReaderRequest<'_>,
    ) -> Result<SessionResponse, PeerError> {
        self.travel().await;
        let host = self.reach(session)?;
        let mut own = Request::new(String::new().into());
        *own.uri_mut() = request.target.parse().unwrap();
        for (name, value) in request.headers {
            let name = http::HeaderName::try_from(*name).unwrap();
            own.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        let (principal, session) = (principal.clone(), session.clone());
        let asked = SessionRequest { principal, session, id: "req_1".into(), request: own };
        let response = session::respond(&host, &asked).await;
        let response = response.unwrap_or_else(|problem| response::problem(&problem, "req_1"));
        let status = response.status().as_u16();
        let body = match response.into_body() {
            Body::Stream(stream) => stream.map_err(|error| PeerError(error.to_string())).boxed_local(),
            _ => futures::stream::empty().boxed_local(),
        };
        Ok(SessionResponse { status, body })
    }
}

fn peer_error(problem: Problem) -> PeerError {
    PeerError(problem.to_string())
}

#[async_trait(?Send)]
impl SessionEraser for Others {
    async fn erase(&self, tenant: &TenantId, session: &SessionId) -> Result<(), PeerError> {
        self.travel().await;
        let host = self.reach(session)?;
        host.erase(tenant, session).await.map_err(peer_error)
    }
}
