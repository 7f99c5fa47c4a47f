//! Runs: jobs of steps, each of which is the conversation of one session.

use super::SessionId;
use serde::{Deserialize, Serialize};

/// The start of the id of a run's session.
const PREFIX: &str = "run_";
/// Length of the unique part of a generated id.
const UNIQUE: usize = 32;

impl SessionId {
    /// Returns whether the session is that of a run: `run_` and 32 more characters. Clients cannot choose such an id.
    pub fn is_run(&self) -> bool {
        self.strip_prefix(PREFIX).is_some_and(|unique| unique.len() == UNIQUE)
    }

    /// Returns the id if the session is that of a run.
    pub fn as_run(&self) -> Option<Self> {
        self.is_run().then(|| self.clone())
    }

    /// Returns the id of the run that has the unique part of this generated id.
    pub fn into_run(self) -> Self {
        let unique = self.rsplit('_').next().unwrap_or_default();
        format!("{PREFIX}{unique}").into()
    }
}

/// Which steps of a run need an approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunApprovals {
    /// The steps for which the plan says so.
    #[default]
    Plan,
    /// All steps.
    All,
}

/// What happens when a person declines a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDecline {
    /// The step is skipped, with the steps that depend on it.
    #[default]
    Skip,
    /// The run fails.
    Fail,
}

/// A spec as the run has read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunSpec {
    /// The name of the spec.
    pub name: String,
    /// SHA-256 of its text.
    pub hash: String,
}

/// What a turn of a run does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunTurn {
    /// It starts the run. Its message is the goal, or the text of the spec.
    Start {
        /// The spec, if the goal is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spec: Option<RunSpec>,
        /// Which steps need an approval.
        approvals: RunApprovals,
        /// What happens when a person declines a step.
        on_decline: OnDecline,
    },
    /// It continues a run that has ended.
    Retry {
        /// The step from which it starts again; the steps that did not succeed if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{GeneratedId, Timestamp};

    #[test]
    fn a_run_has_an_id_of_its_own() {
        let session = SessionId::generate(Timestamp(1), &[7; 10]);
        assert!(!session.is_run() && !SessionId::from("run_my-tests").is_run());
        let run = session.clone().into_run();
        assert!(run.is_run() && run.len() == session.len(), "{run}");
        assert_eq!(run.clone().into_run(), run);
    }
}
