//! `agentctl run`.

#[cfg(target_os = "linux")]
use crate::runner::{Machine, Options, serve_beside};
use crate::{
    api::Api,
    commands::spec,
    context::Context,
    error::{Error, Result},
    printer::Show,
    runs::{Follower, Printed},
};
use serde_json::{Value, json};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  agentctl run --spec specs/fix-parser.md --agent coder --root . --verify 'make test'
  agentctl run --goal 'Update the changelog.' --agent coder --budget-usd 0.50 --detach
  agentctl run --spec fix-parser --agent coder --approvals all
  agentctl runs tail run_0199…";

/// Starts a run, and follows it until it ends
///
/// A run plans steps for a goal or a spec, does them, verifies the result, and reports. On a terminal, you decide on what
/// waits for an approval. Ctrl-C cancels the run, and a second one leaves. The exit code is 0 if the run succeeds, 1 if it
/// fails or is canceled, and 5 if it waits for a person while this command has no terminal to ask on. A call of a local tool
/// waits for a runner: for this program with --root, or else for `agentctl runner`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[cfg_attr(target_os = "linux", command(mut_arg("root", |root| root.required(false))))]
pub(crate) struct Run {
    /// What the run has to achieve
    #[arg(long, value_name = "TEXT", required_unless_present = "spec", conflicts_with = "spec")]
    goal: Option<String>,
    /// Spec of the run: its name in the workspace, or a file NAME.md, which is uploaded first
    #[arg(long, value_name = "NAME|FILE")]
    spec: Option<String>,
    /// Agent of the run
    #[arg(long)]
    agent: Option<String>,
    /// Title [default: taken from the goal or the spec]
    #[arg(long)]
    title: Option<String>,
    /// Which steps need an approval
    #[arg(long, value_enum)]
    approvals: Option<Approvals>,
    /// What a declined step does
    #[arg(long, value_enum)]
    on_decline: Option<OnDecline>,
    /// Maximum cost of the run, in US dollars
    #[arg(long, value_name = "USD")]
    budget_usd: Option<f64>,
    /// Returns at once with the id of the run
    #[arg(long)]
    detach: bool,
    /// Prints each event of the run as a line of JSON
    #[arg(long, conflicts_with = "detach")]
    events: bool,
    #[cfg(target_os = "linux")]
    #[command(flatten, next_help_heading = "Options of a runner, which --root starts beside the run")]
    runner: Option<Options>,
}

/// Which steps of a run need an approval.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Approvals {
    /// Those that the plan or the agent's rules name
    Plan,
    /// All of them
    All,
}

/// What a declined step does.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum OnDecline {
    /// It is skipped, with the steps that depend on it
    Skip,
    /// The run fails
    Fail,
}

impl Run {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        #[cfg(target_os = "linux")]
        if self.detach && self.runner.is_some() {
            return Err(Error::Usage(
                "--root does not work with --detach: the runner ends with this program".into(),
            ));
        }
        let api = context.api()?;
        // A machine without a sandbox is refused before anything starts.
        #[cfg(target_os = "linux")]
        let machine = match &self.runner {
            Some(options) => Some(options.machine(context).await?),
            None => None,
        };
        let run: Value = api.post("/v1/runs").body_json(&self.body(context, &api).await?).json().await?;
        let id = run["id"].as_str().unwrap_or_default();
        if self.detach {
            return context.out.value(&run, |_| id.to_owned());
        }
        context.out.note(id);
        let show = Show::of(context, self.events);
        #[cfg(target_os = "linux")]
        return follow(context, &api, id, show, machine.as_ref()).await;
        #[cfg(not(target_os = "linux"))]
        return follow(context, &api, id, show).await;
    }

    /// Returns the body of the request. Uploads a spec in a file.
    async fn body(&self, context: &Context, api: &Api) -> Result<Value> {
        let mut body = json!({});
        let spec = match &self.spec {
            None => None,
            Some(named) => Some(match spec::LocalSpec::named(named)? {
                None => named.clone(),
                Some(local) => {
                    let agent = self.agent.as_deref().unwrap_or("default");
                    spec::push(context, api, Path::new(named), &local, agent, false).await?;
                    local.name
                }
            }),
        };
        let fields = [("goal", &self.goal), ("spec", &spec), ("agent", &self.agent), ("title", &self.title)];
        for (name, value) in fields {
            if let Some(value) = value {
                body[name] = value.as_str().into();
            }
        }
        if let Some(approvals) = self.approvals {
            body["approvals"] = match approvals {
                Approvals::Plan => "plan".into(),
                Approvals::All => "all".into(),
            };
        }
        if let Some(on_decline) = self.on_decline {
            body["on_decline"] = match on_decline {
                OnDecline::Skip => "skip".into(),
                OnDecline::Fail => "fail".into(),
            };
        }
        if let Some(cost) = self.budget_usd {
            body["budget"]["max_cost_usd"] = cost.into();
        }
        Ok(body)
    }
}

/// Follows a new run, and serves its local calls on a machine.
#[cfg(target_os = "linux")]
async fn follow(context: &Context, api: &Api, id: &str, show: Show, machine: Option<&Machine>) -> Result<()> {
    let printed = Printed { show, cancels: true, is_served: machine.is_some() };
    let following = Follower::new(context, api, id, "0".into(), printed)?.follow();
    match machine {
        Some(machine) => serve_beside(api, id, machine, following).await,
        None => following.await,
    }
}

/// Follows a new run.
#[cfg(not(target_os = "linux"))]
async fn follow(context: &Context, api: &Api, id: &str, show: Show) -> Result<()> {
    let printed = Printed { show, cancels: true, is_served: false };
    Follower::new(context, api, id, "0".into(), printed)?.follow().await
}
