//! The network, as a test wants it.

use crate::ports::{Http, HttpError, HttpRequest, HttpResponse, Peers};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
};

/// Answers requests in the order in which answers were queued; offline when none is left.
#[derive(Default)]
pub struct ScriptedHttp {
    answers: RefCell<VecDeque<(u16, Bytes)>>,
    requests: RefCell<Vec<HttpRequest>>,
}

impl ScriptedHttp {
    /// Queues an answer.
    pub fn answer(&self, status: u16, body: impl Into<Bytes>) {
        self.answers.borrow_mut().push_back((status, body.into()));
    }

    /// What was asked, oldest first.
    pub fn requests(&self) -> Vec<HttpRequest> {
        self.requests.borrow().clone()
    }
}

#[async_trait(?Send)]
impl Http for ScriptedHttp {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.requests.borrow_mut().push(request);
        let (status, body) =
            self.answers.borrow_mut().pop_front().ok_or_else(|| HttpError("offline".into()))?;
        Ok(HttpResponse { status, headers: Vec::new(), body: stream::iter([Ok(body)]).boxed_local() })
    }
}

/// Other sessions, of which only the snapshots that they were made from are kept.
#[derive(Default)]
pub struct MemoryPeers {
    /// While set, every call fails.
    pub down: Cell<bool>,
    snapshots: RefCell<BTreeMap<(String, String), String>>,
}

impl MemoryPeers {
    /// What a session was made from.
    pub fn snapshot(&self, tenant: &str, session: &str) -> Option<String> {
        self.snapshots.borrow().get(&(tenant.to_owned(), session.to_owned())).cloned()
    }
}

#[async_trait(?Send)]
impl Peers for MemoryPeers {
    async fn import(&self, tenant: &str, session: &str, snapshot: String) -> Result<String, String> {
        if self.down.get() {
            return Err("switched off".into());
        }
        let mut snapshots = self.snapshots.borrow_mut();
        snapshots.entry((tenant.to_owned(), session.to_owned())).or_insert(snapshot);
        Ok(serde_json::json!({ "id": session }).to_string())
    }
}
