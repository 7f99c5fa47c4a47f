//! The network as scripted by a test.

use crate::ports::{
    Http, HttpError, HttpRequest, HttpResponse, PeerError, PeerRequest, PeerResponse, Peers, ReaderRequest,
    SessionEraser, SessionReader, SessionResponse,
};
use crate::types::{
    Acknowledgement, CallId, ChildStatus, Imported, Principal, SessionId, Snapshot, TenantId,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use std::{cell::RefCell, collections::VecDeque};

/// A response: status, headers and body.
type Scripted = (u16, Vec<(String, String)>, Bytes);

/// Returns queued responses in order; fails when the queue is empty.
#[derive(Default)]
pub struct ScriptedHttp {
    responses: RefCell<VecDeque<Scripted>>,
    requests: RefCell<Vec<HttpRequest>>,
}

impl ScriptedHttp {
    /// Queues a response.
    pub fn respond(&self, status: u16, body: impl Into<Bytes>) {
        self.respond_with(status, &[], body);
    }

    /// Queues a response with headers, whose names are in lower case.
    pub fn respond_with(&self, status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.responses.borrow_mut().push_back((status, headers.collect(), body.into()));
    }

    /// Returns all requests so far, oldest first.
    pub fn requests(&self) -> Vec<HttpRequest> {
        self.requests.borrow().clone()
    }
}

#[async_trait(?Send)]
impl Http for ScriptedHttp {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.requests.borrow_mut().push(request);
        let (status, headers, body) =
            self.responses.borrow_mut().pop_front().ok_or_else(|| HttpError("offline".into()))?;
        Ok(HttpResponse { status, headers, body: stream::iter([Ok(body)]).boxed_local() })
    }
}

/// Peers of a test with a single session: every call fails.
pub struct NoPeers;

#[async_trait(?Send)]
impl Peers for NoPeers {
    async fn copy(&self, _: &TenantId, _: &SessionId, _: Snapshot) -> Result<(), PeerError> {
        Err(PeerError("there are no other sessions here".into()))
    }

    async fn import(&self, _: &TenantId, _: &SessionId, _: Snapshot) -> Result<Imported, PeerError> {
        Err(PeerError("there are no other sessions here".into()))
    }

    async fn cancel(&self, _: &TenantId, _: &SessionId, _: &CallId) -> Result<ChildStatus, PeerError> {
        Err(PeerError("there are no other sessions here".into()))
    }

    async fn notify(
        &self,
        _: &TenantId,
        _: &SessionId,
        _: ChildStatus,
    ) -> Result<Acknowledgement, PeerError> {
        Ok(Acknowledgement::NotWanted)
    }

    async fn post(&self, _: &SessionId, _: PeerRequest) -> Result<PeerResponse, PeerError> {
        Err(PeerError("there are no other sessions here".into()))
    }
}

#[async_trait(?Send)]
impl SessionReader for NoPeers {
    async fn send(
        &self,
        _: &Principal,
        _: &SessionId,
        _: ReaderRequest<'_>,
    ) -> Result<SessionResponse, PeerError> {
        Err(PeerError("there are no other sessions here".into()))
    }
}

#[async_trait(?Send)]
impl SessionEraser for NoPeers {
    async fn erase(&self, _tenant: &TenantId, _session: &SessionId) -> Result<(), PeerError> {
        Ok(())
    }
}
