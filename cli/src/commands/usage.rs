//! `agentctl usage`.

use super::tenants::route;
use crate::{context::Context, error::Result};
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  agentctl usage
  agentctl usage --from 2026-11-01 --to 2026-11-30 --group model
  agentctl usage --tenant acme --group user --profile operator";

/// Shows what a tenant has used: turns, tokens, cost
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Usage {
    /// Tenant to show; needs the operator's key [default: the tenant of the key]
    #[arg(long)]
    tenant: Option<String>,
    /// First day in UTC [default: 30 days ago]
    #[arg(long, value_name = "DAY")]
    from: Option<String>,
    /// Last day in UTC [default: today]
    #[arg(long, value_name = "DAY")]
    to: Option<String>,
    /// Field by which rows are grouped
    #[arg(long, value_enum, default_value_t = Group::Day)]
    group: Group,
}

/// The field by which rows of the usage are grouped.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Group {
    /// A day
    Day,
    /// An agent
    Agent,
    /// A model
    Model,
    /// A user
    User,
}

impl Usage {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let group = match self.group {
            Group::Day => "day",
            Group::Agent => "agent",
            Group::Model => "model",
            Group::User => "user",
        };
        let path = match &self.tenant {
            Some(tenant) => format!("{}/usage", route(tenant)),
            None => "/v1/usage".into(),
        };
        let api = context.api()?;
        // The routes of the operator do not get the user by themselves.
        let user = context.global.user.as_deref().filter(|_| self.tenant.is_some());
        let request = api.get(&path).query("group", group).query("limit", "200").maybe("user", user);
        let usage: Value =
            request.maybe("from", self.from.as_deref()).maybe("to", self.to.as_deref()).json().await?;
        if context.out.json {
            return context.out.line(&usage.to_string());
        }
        let mut rows = usage["data"].as_array().cloned().unwrap_or_default();
        let mut total = usage["total"].as_object().cloned().unwrap_or_default();
        total.insert(group.to_owned(), "total".into());
        rows.push(total.into());
        context.out.list(
            &rows,
            &[
                group,
                "turns",
                "steps",
                "tool_calls",
                "input_tokens",
                "output_tokens",
                "total_tokens",
                "cost_usd",
            ],
        )
    }
}
