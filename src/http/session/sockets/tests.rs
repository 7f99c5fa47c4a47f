use super::*;
use crate::http::session::checks::room_for_socket;
use crate::platform::in_memory::{InMemoryCredentials, ManualClock, MemoryLog, MemorySessionStore, TaskPool};
use crate::session::{Session, hub::Hub, window::Bounds};
use crate::types::{Delta, ErrorCode, MessageId, Owner, Scopes, SessionMeta, SessionState, TurnId};
use futures::executor::block_on;
use std::time::Duration;

const NOW: Timestamp = Timestamp(1_000_000);

/// A socket that keeps what was sent to it.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<(Vec<String>, Option<u16>)>>);

impl PartialEq for Wire {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Socket for Wire {
    fn send(&self, text: &str) -> bool {
        let mut wire = self.0.borrow_mut();
        if wire.1.is_none() {
            wire.0.push(text.to_owned());
        }
        wire.1.is_none()
    }

    fn close(&self, code: u16, _reason: &str) {
        self.0.borrow_mut().1 = Some(code);
    }
}

impl Wire {
    fn received(&self) -> usize {
        self.0.borrow().0.len()
    }

    fn code(&self) -> Option<u16> {
        self.0.borrow().1
    }
}

struct Fixture {
    sockets: Sockets<Wire>,
    credentials: Rc<InMemoryCredentials>,
    clock: ManualClock,
    tasks: Rc<TaskPool>,
}

fn fixture() -> Fixture {
    let (credentials, tasks) = (Rc::<InMemoryCredentials>::default(), Rc::<TaskPool>::default());
    let clock = ManualClock::at(NOW);
    let (time, log) = (Rc::new(clock.clone()), Rc::<MemoryLog>::default());
    let sockets = Sockets::new([], credentials.clone(), time, tasks.clone(), log);
    Fixture { sockets, credentials, clock, tasks }
}

impl Fixture {
    /// Opens a socket whose credential was found valid for another minute.
    fn open(&self, expires_at: Option<Timestamp>) -> (Wire, Rc<OpenSocket<Wire>>) {
        let valid_until = NOW + Duration::from_mins(1);
        let principal = Principal { expires_at, valid_until, ..Principal::new("t", Scopes::all()) };
        let wire = Wire::default();
        let open = self.sockets.add(wire.clone(), SocketState { principal, session: "s".into() });
        (wire, open)
    }

    fn broadcast(&self) {
        let delta = Delta::Text { id: MessageId::from("m"), delta: "text".into() };
        self.sockets.broadcast(&Frame::delta(delta, &TurnId::from("t1"), None));
    }
}

#[test]
fn a_revoked_credential_receives_nothing_once_its_last_check_has_expired() {
    let fixture = fixture();
    let (wire, open) = fixture.open(None);
    fixture.credentials.revoked.set(true);
    fixture.broadcast();
    assert_eq!((wire.received(), wire.code()), (1, None));
    fixture.clock.advance(Duration::from_mins(1));
    fixture.broadcast();
    fixture.tasks.run();
    assert_eq!((wire.received(), wire.code()), (1, Some(4401)));
    assert!(block_on(fixture.sockets.checked(&open)).is_none());
    fixture.broadcast();
    assert!(fixture.sockets.is_empty());
}

#[test]
fn frames_wait_for_the_check_and_keep_their_order() {
    let fixture = fixture();
    let (wire, _) = fixture.open(None);
    fixture.clock.advance(Duration::from_mins(1));
    fixture.broadcast();
    fixture.broadcast();
    assert_eq!(wire.received(), 0);
    fixture.tasks.run();
    assert_eq!((wire.received(), wire.code()), (2, None));
}

#[test]
fn a_socket_is_closed_when_its_credential_cannot_be_checked_or_too_much_waits() {
    let fixture = fixture();
    let (wire, _) = fixture.open(None);
    fixture.clock.advance(Duration::from_mins(1));
    fixture.credentials.down.set(true);
    fixture.broadcast();
    fixture.tasks.run();
    assert_eq!((wire.received(), wire.code()), (0, Some(1013)));
    fixture.credentials.down.set(false);
    let (wire, _) = fixture.open(None);
    for _ in 0..=MAX_HELD / 50 {
        fixture.broadcast();
    }
    assert_eq!((wire.received(), wire.code()), (0, Some(1013)));
}

#[test]
fn a_command_checks_the_credential_again() {
    let fixture = fixture();
    let (wire, open) = fixture.open(None);
    assert!(block_on(fixture.sockets.checked(&open)).is_some());
    fixture.clock.advance(Duration::from_mins(1));
    assert!(block_on(fixture.sockets.checked(&open)).is_some());
    fixture.clock.advance(Duration::from_mins(1));
    fixture.credentials.revoked.set(true);
    assert!(block_on(fixture.sockets.checked(&open)).is_none());
    assert_eq!(wire.code(), Some(4401));
}

#[test]
fn sockets_are_closed_when_their_token_expires() {
    let fixture = fixture();
    let soon = NOW + Duration::from_secs(5);
    let ((first, _), (other, _)) = (fixture.open(Some(soon)), fixture.open(None));
    assert_eq!(fixture.sockets.expires_at(), Some(soon));
    fixture.clock.advance(Duration::from_secs(5));
    fixture.sockets.close_expired();
    assert_eq!((first.code(), other.code()), (Some(4401), None));
    assert_eq!(fixture.sockets.expires_at(), None);
    fixture.sockets.remove(&other);
    assert!(fixture.sockets.is_empty());
}

#[test]
fn a_session_refuses_another_socket_while_it_has_a_hundred() {
    let fixture = fixture();
    let wires: Vec<_> = (0..100).map(|_| fixture.open(None).0).collect();
    let sockets = Rc::new(fixture.sockets);
    let owner = Owner { tenant: "t".into(), agent: "default".into(), user: "u".into() };
    let state = SessionState::new(SessionMeta::new("s".into(), owner, NOW));
    let hub = Hub::new(Some(Rc::clone(&sockets) as Rc<dyn Broadcast>));
    let session = Session::create(Rc::new(MemorySessionStore::default()), state, Bounds::wide(), hub);
    let refused = room_for_socket(&session).expect_err("the session is full");
    assert_eq!((refused.code, refused.retry_after_s), (ErrorCode::RateLimited, Some(10)));
    sockets.remove(&wires[0]);
    assert_eq!(room_for_socket(&session), Ok(()));
}
