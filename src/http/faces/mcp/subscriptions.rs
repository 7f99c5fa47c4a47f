//! `subscriptions/listen`: a stream of notifications about changed files. The gateway looks at the files every few
//! seconds, because changes are made in many isolates and only the stores know all of them. A stream ends after a few
//! minutes, and the client listens again.

use super::super::sse;
use super::fault::Fault;
use super::message::Asked;
use super::rpc::{self, Failure};
use super::{resources, task};
use crate::http::gateway::TenantCall;
use crate::http::response::Response;
use crate::http::session::feed;
use crate::http::stream_caller::StreamCaller;
use crate::ports::{Clock, filesystem::FileResult};
use crate::session::hub::Interrupted;
use crate::types::{FilePath, Problem, TenantId, Timestamp};
use crate::workspace::Workspace;
use bytes::Bytes;
use futures::{
    StreamExt,
    future::ready,
    stream::{self, unfold},
};
use serde_json::{Value, json};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
};

/// Most files of a stream. With two queries for each file and look, a stream makes at most 800 queries; the platform
/// permits a request 1,000.
const MAX_FILES: usize = 10;
/// How often a stream looks at its files.
const LOOKS: u32 = 40;
/// The time before each look.
const INTERVAL: Duration = Duration::from_secs(5);
/// A stream that has not looked for this long counts as closed. A look takes a few queries.
const SILENCE: Duration = Duration::from_secs(20);
/// Maximum number of open streams of a tenant in an isolate. Each makes up to four queries a second.
const MAX_STREAMS: usize = 20;
/// Keeps the connection open while nothing changes.
const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// The field of `_meta` that has the id of the request.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Opens a stream. It begins with what the client is notified about: those of its files that exist or may exist, up to
/// [`MAX_FILES`].
///
/// # Errors
/// An invalid filter, or a failed store.
pub(super) async fn listen(call: &TenantCall<'_>, asked: &Asked) -> Result<Response, Failure> {
    let invalid = || Fault::invalid_params("`notifications` must be a filter of notifications");
    let filter = asked.params.get("notifications").and_then(Value::as_object).ok_or_else(invalid)?;
    if filter.contains_key("taskIds") && !asked.reads_tasks() {
        return Err(task::missing().into());
    }
    let now = call.gateway.clock.now();
    let permit = StreamPermit::of(&call.caller.tenant, now).ok_or_else(|| {
        let detail = format!("the tenant has {MAX_STREAMS} streams of changes open; close one");
        Problem::rate_limited(&detail, now + SILENCE, now)
    })?;
    let uris = match filter.get("resourceSubscriptions") {
        None => Vec::new(),
        Some(Value::Array(uris)) => uris.iter().filter_map(Value::as_str).collect(),
        Some(_) => return Err(invalid().into()),
    };
    let mut files: Vec<WatchedFile> = Vec::new();
    for uri in uris {
        let Some((agent, path)) = resources::find(call, uri).await else { continue };
        if files.len() < MAX_FILES && files.iter().all(|file| file.uri != uri) {
            let workspace = resources::open(call, &agent).await?;
            let mut file = WatchedFile { uri: uri.to_owned(), workspace, path, version: None };
            file.has_changed().await?;
            files.push(file);
        }
    }
    let mut honored = json!({});
    if filter.contains_key("resourceSubscriptions") {
        honored["resourceSubscriptions"] = files.iter().map(|file| file.uri.as_str()).collect();
    }
    let watch = Watch {
        id: asked.id.clone(),
        permit,
        files,
        left: LOOKS,
        caller: StreamCaller::new(call.caller, call.gateway.credentials(), &call.gateway.clock),
        clock: Rc::clone(&call.gateway.clock),
    };
    let mut first = Vec::new();
    watch.notify("subscriptions/acknowledged", json!({ "notifications": honored }), &mut first);
    let first = stream::once(ready(Ok(first.into())));
    Ok(feed::response(first.chain(unfold(watch, Watch::next)).boxed_local(), "text/event-stream"))
}

thread_local! {
    /// When each open stream of a tenant last looked. An isolate has one thread.
    static STREAMS: RefCell<BTreeMap<TenantId, Vec<Weak<Cell<Timestamp>>>>> = RefCell::default();
}

/// The right to have a stream open. It ends when it is dropped. When a client leaves, the platform stops the stream
/// without dropping it, so the right also ends [`SILENCE`] after the last look.
struct StreamPermit(Rc<Cell<Timestamp>>);

impl StreamPermit {
    /// Takes one of the tenant's streams; `None` if all are open.
    fn of(tenant: &TenantId, now: Timestamp) -> Option<Self> {
        let is_open = |last_look: &Weak<Cell<Timestamp>>| {
            last_look.upgrade().is_some_and(|last_look| now.since(last_look.get()) < SILENCE)
        };
        STREAMS.with_borrow_mut(|streams| {
            streams.retain(|_, open| {
                open.retain(is_open);
                !open.is_empty()
            });
            let open = streams.entry(tenant.clone()).or_default();
            (open.len() < MAX_STREAMS).then(|| {
                let permit = Self(Rc::new(Cell::new(now)));
                open.push(Rc::downgrade(&permit.0));
                permit
            })
        })
    }
}

/// A file that a client is notified about.
struct WatchedFile {
    uri: String,
    workspace: Workspace,
    path: FilePath,
    /// The version of the last look; `None` if there was no such file.
    version: Option<String>,
}

impl WatchedFile {
    /// Looks at the file. Returns whether it differs from the last look.
    async fn has_changed(&mut self) -> FileResult<bool> {
        let version = self.workspace.find(&self.path).await?.map(|(entry, _)| entry.etag);
        let has_changed = version != self.version;
        self.version = version;
        Ok(has_changed)
    }
}

/// An open stream.
struct Watch {
    /// The id of the request.
    id: Value,
    permit: StreamPermit,
    files: Vec<WatchedFile>,
    /// Number of looks that follow.
    left: u32,
    caller: StreamCaller,
    clock: Rc<dyn Clock>,
}

impl Watch {
    /// Returns the next part of the stream; `None` after its end.
    async fn next(mut self) -> Option<(Result<Bytes, Interrupted>, Self)> {
        self.left = self.left.checked_sub(1)?;
        self.clock.sleep(INTERVAL).await;
        self.permit.0.set(self.clock.now());
        let part = self.look().await;
        if part.is_err() {
            self.left = 0;
        }
        Some((part, self))
    }

    /// Notifies about files that have changed, and ends the stream if it has to end.
    async fn look(&mut self) -> Result<Bytes, Interrupted> {
        let mut changed = Vec::new();
        if self.caller.may_read().await? {
            for file in &mut self.files {
                if file.has_changed().await.map_err(|_| Interrupted)? {
                    changed.push(file.uri.clone());
                }
            }
        } else {
            self.left = 0;
        }
        let mut out = Vec::new();
        for uri in changed {
            self.notify("resources/updated", json!({ "uri": uri }), &mut out);
        }
        if self.left == 0 {
            let mut last = rpc::completed(&self.id, true, json!({}));
            last["result"]["_meta"][SUBSCRIPTION] = self.id.clone();
            sse::write(&last, &mut out);
        }
        Ok(if out.is_empty() { KEEP_ALIVE } else { out.into() })
    }

    fn notify(&self, name: &str, mut params: Value, out: &mut Vec<u8>) {
        params["_meta"] = json!({ SUBSCRIPTION: self.id });
        let method = format!("notifications/{name}");
        sse::write(&json!({"jsonrpc": "2.0", "method": method, "params": params}), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_few_streams_at_a_time() {
        let (one, other) = (TenantId::from("one"), TenantId::from("other"));
        let of = |tenant, second: u64| StreamPermit::of(tenant, Timestamp(second * 1_000));
        let open: Vec<_> = (0..MAX_STREAMS).filter_map(|_| of(&one, 0)).collect();
        assert_eq!(open.len(), MAX_STREAMS);
        assert!(of(&one, 0).is_none() && of(&other, 0).is_some());
        drop(open);
        assert!(of(&one, 0).is_some());
    }

    #[test]
    fn a_stream_that_does_not_look_any_more_is_closed() {
        let tenant = TenantId::from("left");
        let of = |second: u64| StreamPermit::of(&tenant, Timestamp(second * 1_000));
        let open: Vec<_> = (0..MAX_STREAMS).filter_map(|_| of(0)).collect();
        open[0].0.set(Timestamp(15_000));
        assert!(of(19).is_none());
        let later: Vec<_> = (0..MAX_STREAMS).filter_map(|_| of(20)).collect();
        assert_eq!(later.len(), MAX_STREAMS - 1);
    }
}
