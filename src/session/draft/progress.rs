//! Changes of the progress of background work.

use super::Draft;
use crate::types::{FollowUpProgress, InboxMark, IntervalState, RequestTimes, Timestamp, session::Account};

impl Draft {
    /// Requests a follow-up; see `agent::FollowUp`.
    pub fn request_follow_up(&mut self, name: &str, now: Timestamp) {
        let progress = self.follow_up_mut(name);
        let first = progress.waiting.map_or(now, |times| times.first);
        progress.waiting = Some(RequestTimes { first, last: now });
        progress.requested += 1;
    }

    /// Returns the progress of a follow-up.
    pub(crate) fn follow_up_mut(&mut self, name: &str) -> &mut FollowUpProgress {
        self.activity().follow_ups.entry(name.to_owned()).or_default()
    }

    /// Stores the state of an interval.
    pub(crate) fn set_interval(&mut self, name: &str, state: IntervalState) {
        self.background().intervals.insert(name.to_owned(), state);
    }

    /// Makes the session's entry in the list of sessions be written again.
    pub fn relist(&mut self) {
        self.background().listed_at = Timestamp(0);
    }

    /// Stores when the session was last listed, and whether as running.
    pub(crate) fn set_listed(&mut self, at: Timestamp, running: bool) {
        let background = self.background();
        (background.listed_at, background.listed_running) = (at, running);
    }

    /// Stores that a call begins to wait or waits differently, which the inbox is about to be notified of.
    pub(crate) fn list_in_inbox(&mut self) {
        self.background().inbox.get_or_insert_default().uncertain = true;
    }

    /// Stores what the inbox has acknowledged.
    pub(crate) fn set_inbox(&mut self, mark: InboxMark) {
        self.background().inbox = Some(mark);
    }

    /// Stores when the first document or artifact expires.
    pub(crate) fn set_purge_at(&mut self, at: Option<Timestamp>) {
        self.background().purge_at = at;
    }

    /// Stores what the tenant's ledger has confirmed.
    pub(crate) fn set_account(&mut self, account: Account) {
        *self.account() = account;
    }

    /// Stores until when the session holds the slot that it was admitted to, if it was.
    pub(crate) fn hold_slot(&mut self, until: Option<Timestamp>) {
        if until.is_some() {
            self.account().slot_until = until;
        }
    }

    /// Counts the bytes of an attachment.
    pub(crate) fn add_attached(&mut self, bytes: u64) {
        self.activity().reserved.attached += bytes;
    }
}
