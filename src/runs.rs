//! Runs: jobs of steps. A run is a session whose model is a [`RunModel`].
//!
//! All of a run is in the log of its session. [`Run`] is the fold of the log, [`Run::next`] decides which calls come next,
//! and [`RunModel`] responds with these calls, like a language model would. So the journal, approvals, recovery and budgets
//! of the turn apply to each step.
//!
//! ```text
//! log ─▶ Run (fold) ─▶ Run::next (decision) ─▶ RunModel ─▶ tool calls of the turn ─▶ log
//! ```

mod archive;
mod call;
mod decision;
mod drawing;
mod fold;
mod model;
mod plan;
mod prompt;
mod report;
mod view;

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

pub use archive::Archive;
pub use call::{ARTIFACT, PLAN, Purpose};
pub use decision::Next;
pub use drawing::is_mermaid;
pub use fold::{KINDS, Run, StepStatus};
pub use model::RunModel;
pub use plan::{Plan, PlanSource, Step, StepType};
pub use view::{About, RunPhase, RunStatus, RunView, StepView};
