//! `agentctl runs`.

use super::sessions::archive;
use crate::{
    api::segment,
    context::Context,
    error::{Error, Result},
    output::short,
    printer::Show as Printing,
    runs::{Follower, Printed, Run, page, path},
    wire::Session,
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  agentctl runs list --status waiting
  agentctl runs show run_0199…
  agentctl runs approve run_0199… fix --args-hash 2f7d…
  agentctl runs tail run_0199…
  agentctl runs retry run_0199… --from fix
  agentctl runs export run_0199… -o run.zip";

/// Lists, shows, follows, approves, cancels, retries and exports runs
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Runs {
    List(List),
    Show(Show),
    Tail(Tail),
    Approve(Approve),
    Cancel(Cancel),
    Retry(Retry),
    Export(Export),
}

impl Runs {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::List(command) => command.run(context).await,
            Self::Show(command) => command.run(context).await,
            Self::Tail(command) => command.run(context).await,
            Self::Approve(command) => command.run(context).await,
            Self::Cancel(command) => command.run(context).await,
            Self::Retry(command) => command.run(context).await,
            Self::Export(command) => command.run(context).await,
        }
    }
}

/// Lists runs, newest first
#[derive(clap::Args)]
pub(crate) struct List {
    /// Lists only runs of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Lists only runs of this status: queued, running, waiting, succeeded, failed, canceled or unknown
    #[arg(long)]
    status: Option<String>,
    /// Maximum number of runs
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

impl List {
    async fn run(self, context: &Context) -> Result<()> {
        let filter = [("agent", &self.agent), ("status", &self.status)];
        let filter: Vec<_> =
            filter.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        let mut runs = context.api()?.list("/v1/runs", &filter, self.limit).await?;
        if !context.out.json {
            for run in &mut runs {
                run["goal"] = summary(run).into();
            }
        }
        context.out.list(&runs, &["id", "status", "agent", "updated_at", "goal"])
    }
}

/// Returns the title of a run, or else its spec or its goal.
fn summary(run: &Value) -> String {
    let text = run["title"].as_str().or(run["spec"]["name"].as_str()).or(run["goal"].as_str());
    short(&text.unwrap_or_default().into())
}

/// Shows a run: its state, its steps, and how to approve those that wait
#[derive(clap::Args)]
pub(crate) struct Show {
    /// Run to show
    run: String,
}

impl Show {
    async fn run(self, context: &Context) -> Result<()> {
        let run: Value = context.api()?.get(&path(&self.run)).json().await?;
        print(context, &run)
    }
}

fn print(context: &Context, run: &Value) -> Result<()> {
    let shown = Run::deserialize(run).map_err(|e| Error::Response(e.to_string()))?;
    context.out.value(run, |_| page(&shown))
}

/// Follows a run from its start until it ends
///
/// On a terminal, you decide on what waits for an approval. Ctrl-C leaves, and the run goes on. The exit codes are those of
/// `run`.
#[derive(clap::Args)]
pub(crate) struct Tail {
    /// Run to follow
    run: String,
    /// Event id after which to start
    #[arg(long, value_name = "ID", default_value = "0", hide_default_value = true)]
    after: String,
    /// Prints each event as a line of JSON
    #[arg(long)]
    events: bool,
}

impl Tail {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let show = Printing::of(context, self.events);
        let printed = Printed { show, cancels: false, is_served: false };
        Follower::new(context, &api, &self.run, self.after, printed)?.follow().await
    }
}

/// Approves or declines a step that waits
#[derive(clap::Args)]
pub(crate) struct Approve {
    /// Run of the step
    run: String,
    /// Step that waits; `agentctl runs show` lists them
    step: String,
    /// Declines the step: it does not run
    #[arg(long)]
    decline: bool,
    /// Reason of the decision
    #[arg(long)]
    reason: Option<String>,
    /// Hash of the arguments that you saw, which `agentctl runs show` prints: the decision is refused if the step has others
    #[arg(long, value_name = "HASH")]
    args_hash: Option<String>,
}

impl Approve {
    async fn run(self, context: &Context) -> Result<()> {
        let route = format!("{}/steps/{}/approval", path(&self.run), segment(&self.step));
        let done = if self.decline { "declined" } else { "approved" };
        let decided: Value = context.api()?.post(&route).body_json(&self.body()).json().await?;
        context.out.value(&decided, |_| format!("{done} {}", self.step))
    }

    fn body(&self) -> Value {
        let mut body = json!({ "decision": if self.decline { "decline" } else { "approve" } });
        for (name, value) in [("reason", &self.reason), ("args_hash", &self.args_hash)] {
            if let Some(value) = value {
                body[name] = value.as_str().into();
            }
        }
        body
    }
}

/// Cancels a run; its steps that have not ended are skipped
#[derive(clap::Args)]
pub(crate) struct Cancel {
    /// Run to cancel
    run: String,
}

impl Cancel {
    async fn run(self, context: &Context) -> Result<()> {
        let canceled: Value = context.api()?.post(&format!("{}/cancel", path(&self.run))).json().await?;
        context.out.value(&canceled, |_| format!("canceled {}", self.run))
    }
}

/// Runs the steps of a run again that have not succeeded, and follows it until it ends
#[derive(clap::Args)]
pub(crate) struct Retry {
    /// Run that has failed or was canceled
    run: String,
    /// First step to run again, even if it has succeeded
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    /// Returns at once
    #[arg(long)]
    detach: bool,
}

impl Retry {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let before: Session = api.get(&format!("/v1/sessions/{}", segment(&self.run))).json().await?;
        let body = self.from.as_ref().map_or_else(|| json!({}), |step| json!({ "from": step }));
        let run: Value = api.post(&format!("{}/retry", path(&self.run))).body_json(&body).json().await?;
        if self.detach {
            return print(context, &run);
        }
        let printed = Printed { show: Printing::of(context, false), cancels: true, is_served: false };
        Follower::new(context, &api, &self.run, before.last_seq.to_string(), printed)?.follow().await
    }
}

/// Writes a run into a zip archive: run.json, events.ndjson and its artifacts
#[derive(clap::Args)]
pub(crate) struct Export {
    /// Run to export
    run: String,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Export {
    async fn run(self, context: &Context) -> Result<()> {
        archive::write(context, &path(&self.run), &self.output).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_has_only_what_was_given() {
        let mut decision = Approve {
            run: "run_1".into(),
            step: "a".into(),
            decline: false,
            reason: None,
            args_hash: Some("h".into()),
        };
        assert_eq!(decision.body(), json!({"decision": "approve", "args_hash": "h"}));
        decision = Approve { decline: true, reason: Some("No.".into()), args_hash: None, ..decision };
        assert_eq!(decision.body(), json!({"decision": "decline", "reason": "No."}));
    }

    #[test]
    fn a_run_is_listed_with_its_title_spec_or_goal() {
        assert_eq!(summary(&json!({"title": "T", "spec": "s", "goal": "g"})), "T");
        assert_eq!(summary(&json!({"title": null, "spec": {"name": "s"}, "goal": "g"})), "s");
        assert_eq!(summary(&json!({"goal": "g\nmore"})), "g more");
        assert_eq!(summary(&json!({})), "");
    }
}
