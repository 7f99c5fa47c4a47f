//! The ids of a run's calls, which say what each call is for.

use crate::types::{CallId, SessionId};

/// The tool that records a plan.
pub const PLAN: &str = "run_plan";
/// The tool that writes a file of the run.
pub const ARTIFACT: &str = "run_artifact";
/// The tool of a runner that renders a diagram.
pub const DIAGRAM: &str = "local_diagram";
/// The tool of a runner that runs a command.
pub(super) const SHELL: &str = "local_shell";
/// The tool of a runner that applies a unified diff.
pub(super) const APPLY_PATCH: &str = "local_apply_patch";
/// The tool of a runner that writes a file.
pub(super) const WRITE: &str = "local_write";
/// The tool that gives a task to a subagent.
pub(super) const SUBAGENT: &str = "subagent";

/// What a call of a run is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It reads the project before the plan.
    Context,
    /// It records a plan, or the steps of a repair.
    Plan,
    /// It does this step.
    Step(String),
    /// It renders the diagram of this step, or stores what was rendered.
    Drawing(String),
    /// It verifies what the run has changed.
    Verify,
    /// It writes the report.
    Report,
}

impl Purpose {
    fn name(&self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Plan => "plan",
            Self::Step(_) => "step",
            Self::Drawing(_) => "drawing",
            Self::Verify => "verify",
            Self::Report => "report",
        }
    }

    /// Returns the id of the `n`th call of the run, such as `run_0199….step.7.build`.
    pub fn call_id(&self, run: &SessionId, n: u32) -> CallId {
        let base = format!("{run}.{}.{n}", self.name());
        match self {
            Self::Step(id) | Self::Drawing(id) => format!("{base}.{id}").into(),
            _ => base.into(),
        }
    }

    /// Reads the id of a call.
    pub fn of(call: &CallId) -> Option<Self> {
        let mut parts = call.split('.').skip(1);
        let (name, _, rest) = (parts.next()?, parts.next()?, parts.next());
        Some(match (name, rest) {
            ("context", None) => Self::Context,
            ("plan", None) => Self::Plan,
            ("step", Some(id)) => Self::Step(id.to_owned()),
            ("drawing", Some(id)) => Self::Drawing(id.to_owned()),
            ("verify", None) => Self::Verify,
            ("report", None) => Self::Report,
            _ => return None,
        })
    }

    /// Returns the step that the call does, or whose diagram it renders.
    pub fn step(self) -> Option<String> {
        match self {
            Self::Step(id) | Self::Drawing(id) => Some(id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::id;

    #[test]
    fn the_id_of_a_call_names_its_purpose() {
        let run: SessionId = format!("run_{}", "0".repeat(32)).as_str().into();
        let (step, drawing) = (Purpose::Step("s".repeat(64)), Purpose::Drawing("s".repeat(64)));
        for purpose in [Purpose::Context, Purpose::Plan, step, drawing, Purpose::Verify, Purpose::Report] {
            let call = purpose.call_id(&run, 4_000_000_000);
            assert!(id::is_valid(&call), "{call}");
            assert_eq!(Purpose::of(&call), Some(purpose));
        }
        assert_eq!(Purpose::of(&"call_1".into()), None);
    }
}
