//! The events of subagents in the stream of their parent, for a reader that asks for them.
//!
//! The parent's object reads the streams of the children that work, and sends each of their events as the data of a
//! `subagent.event`. Such an event is not stored and has no id, so the ids of the parent's own events stay those from which
//! a stream continues.

use super::call::Call;
use crate::agent::SessionHost;
use crate::http::request::{Request, RequestExt};
use crate::ports::{
    ReaderRequest,
    event_stream::{EventTooLarge, Splitter},
};
use crate::session::{
    Session,
    frame::{Event, Frame},
    hub::{ByteReceiver, Interest, Listener, Projection},
};
use crate::types::{EventKind, Principal, Problem, SubagentSource, TurnId};
use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    channel::oneshot,
    stream::{self, FuturesUnordered},
};
use std::{
    collections::BTreeSet,
    rc::{Rc, Weak},
    task::Poll,
    time::Duration,
};

/// Maximum number of tasks whose events a stream has at a time.
const MAX_FOLLOWED: usize = 16;
/// Unread bytes of the reader at which the streams of the children are not read. The children then hold the events back.
const HIGH_WATER: usize = 1 << 20;
/// Length of that pause.
const PAUSE: Duration = Duration::from_millis(20);
/// The first and the longest delay before the stream of a child is opened again. The first one is short, because a child
/// that has just been spawned exists only when its task has arrived.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// How long a stream that ends waits for the last events of tasks that have ended.
const FINISH: Duration = Duration::from_secs(1);

/// Returns whether the reader asks for the events of subagents.
pub(super) fn are_wanted(request: &Request) -> Result<bool, Problem> {
    match request.query("subagents").as_deref() {
        None | Some("" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::field("?subagents", "expected `true` or `false`")),
    }
}

/// Adds the events of the children that work, for all turns or for this one, to a stream of the parent's events.
pub(super) fn with_events(
    call: &Call<'_>,
    session: &Rc<Session>,
    turn: Option<TurnId>,
    own: ByteReceiver,
) -> ByteReceiver {
    let (theirs, stream) = Listener::new(Interest::default(), call.principal);
    let (changes, changed) = Listener::new(Interest::default(), call.principal);
    session.hub().listen(changes.projected(Box::new(Changes)));
    call.host.serve_streams(session);
    let follower = Follower {
        host: Rc::clone(call.host),
        session: Rc::downgrade(session),
        principal: call.principal.clone(),
        turn,
        theirs,
    };
    let (open, ended) = oneshot::channel();
    call.host.spawn(follower.run(changed, ended));
    merged(own, stream, open)
}

/// Returns the chunks of both streams, the first one's before the second one's, until the second one ends. Drops `open` when
/// the first one ends.
fn merged(own: ByteReceiver, mut theirs: ByteReceiver, open: oneshot::Sender<()>) -> ByteReceiver {
    let mut own = Some((own, open));
    stream::poll_fn(move |task| {
        match own.as_mut().map_or(Poll::Pending, |(own, _)| own.poll_next_unpin(task)) {
            Poll::Ready(Some(bytes)) => return Poll::Ready(Some(bytes)),
            Poll::Ready(None) => own = None,
            Poll::Pending => {}
        }
        theirs.poll_next_unpin(task)
    })
    .boxed_local()
}

/// Writes a byte for each record after which another child may work.
struct Changes;

impl Projection for Changes {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        use EventKind::{
            SubagentCompleted, SubagentStarted, TaskCanceled, TaskCompleted, TaskFailed, TaskStarted,
        };
        let Event::Record(record) = event else { return };
        if matches!(
            record.kind,
            SubagentStarted { .. }
                | SubagentCompleted { .. }
                | TaskStarted { .. }
                | TaskCompleted(_)
                | TaskFailed(_)
                | TaskCanceled(_)
        ) {
            out.push(b'\n');
        }
    }

    fn is_last(&self, _frame: &Frame) -> bool {
        false
    }
}

/// Follows the children of a session for one reader.
struct Follower {
    host: Rc<SessionHost>,
    session: Weak<Session>,
    principal: Principal,
    turn: Option<TurnId>,
    theirs: Listener,
}

/// Why the stream of a child has ended.
enum Cut {
    /// Its task has ended.
    Task,
    /// The child cannot be read, or was evicted.
    Connection,
    /// The reader has left, or was dropped because it is too slow.
    Reader,
}

impl Follower {
    /// Follows each task that a child works on, until the parent's stream ends, which closes `ended` or `changed`. The events
    /// of tasks that have ended by then still follow.
    async fn run(self, changed: ByteReceiver, ended: oneshot::Receiver<()>) {
        let (mut changed, mut ended) = (changed.fuse(), ended.fuse());
        let (mut followed, mut open) = (BTreeSet::<TurnId>::new(), BTreeSet::<TurnId>::new());
        let mut work = FuturesUnordered::new();
        loop {
            let working = self.working();
            followed.retain(|task| working.iter().any(|source| source.task == *task));
            for source in working {
                if open.len() < MAX_FOLLOWED && followed.insert(source.task.clone()) {
                    open.insert(source.task.clone());
                    work.push(self.follow(source));
                }
            }
            futures::select_biased! {
                _ = ended => break,
                change = changed.next() => if !matches!(change, Some(Ok(_))) { break },
                over = work.select_next_some() => match over {
                    Some(task) => {
                        open.remove(&task);
                    }
                    None => return,
                },
            }
        }
        for source in self.working() {
            open.remove(&source.task);
        }
        let mut late = self.host.clock().sleep(FINISH).fuse();
        while !open.is_empty() && !self.theirs.is_closed() {
            futures::select_biased! {
                _ = late => return,
                over = work.select_next_some() => match over {
                    Some(task) => {
                        open.remove(&task);
                    }
                    None => return,
                },
            }
        }
    }

    fn working(&self) -> Vec<SubagentSource> {
        let Some(session) = self.session.upgrade() else { return Vec::new() };
        self.host.working_children(&session, self.turn.as_ref()).unwrap_or_default()
    }

    /// Sends the events of a task until it has ended, and returns its id; `None` if the reader no longer reads. Tries again if
    /// the child does not exist yet, or is evicted.
    async fn follow(&self, source: SubagentSource) -> Option<TurnId> {
        let (mut after, mut delay) = ("0".to_owned(), RETRY.0);
        loop {
            // A task that ends while its child cannot be read is read once more.
            let is_working = self.working().contains(&source);
            let before = after.clone();
            match self.read(&source, &mut after).await {
                Cut::Reader => return None,
                Cut::Task => return Some(source.task),
                Cut::Connection if !is_working => return Some(source.task),
                Cut::Connection => {}
            }
            if after != before {
                delay = RETRY.0;
            }
            self.host.clock().sleep(delay).await;
            delay = (delay * 2).min(RETRY.1);
        }
    }

    /// Sends the events of a task after the id `after`, until its stream ends.
    async fn read(&self, source: &SubagentSource, after: &mut String) -> Cut {
        let SubagentSource { session: child, task, .. } = source;
        let target = format!("/v1/sessions/{child}/events?turn={task}&until=idle&after={after}");
        let headers = [("accept", "text/event-stream")];
        let request = ReaderRequest { target: &target, headers: &headers, body: None };
        let Ok(mut response) = self.host.peers().send(&self.principal, child, request).await else {
            return Cut::Connection;
        };
        if response.status != 200 {
            return Cut::Connection;
        }
        let mut events = Splitter::default();
        while let Some(Ok(bytes)) = response.body.next().await {
            let mut cut = None;
            let read = events.push::<EventTooLarge>(&bytes, &mut |name, data| {
                if !self.theirs.send(sse(source, data)) {
                    cut = Some(Cut::Reader);
                } else if matches!(name, "turn.completed" | "turn.failed" | "turn.canceled") {
                    cut = Some(Cut::Task);
                }
                Ok(cut.is_some())
            });
            if let Some(id) = events.last_id() {
                id.clone_into(after);
            }
            if let Some(cut) = cut {
                return cut;
            }
            if read.is_err() {
                return Cut::Connection;
            }
            while self.theirs.backlog() > HIGH_WATER && !self.theirs.is_closed() {
                self.host.clock().sleep(PAUSE).await;
            }
        }
        if self.theirs.is_closed() { Cut::Reader } else { Cut::Connection }
    }
}

/// Returns the Server-Sent Event for an event of a child, which is JSON.
fn sse(source: &SubagentSource, event: &str) -> Bytes {
    // A struct of strings can always be written.
    let source = serde_json::to_string(source).unwrap_or_default();
    let data = format!(r#"{{"type":"subagent.event","source":{source},"event":{event}}}"#);
    Bytes::from(format!("event: subagent.event\ndata: {data}\n\n"))
}
