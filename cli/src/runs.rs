//! Runs: jobs of steps. A run is a session of the server, whose events are followed like those of any other.

mod follow;
mod view;

pub(crate) use follow::{Follower, Output as Printed};
pub(crate) use view::{Run, approval, page, plan};

use crate::api::segment;

/// Returns whether the id of a session is that of a run: `run_` and 32 more characters.
pub(crate) fn is_run(id: &str) -> bool {
    id.strip_prefix("run_").is_some_and(|unique| unique.len() == 32)
}

/// Returns the route of a run.
pub(crate) fn path(run: &str) -> String {
    format!("/v1/runs/{}", segment(run))
}
