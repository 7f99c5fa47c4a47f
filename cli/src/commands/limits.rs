//! `agentctl limits`.

use super::tenants::route;
use crate::{
    context::Context,
    error::{Error, Result},
    output::fields,
};
use serde_json::{Map, Value, json};

const EXAMPLES: &str = "\
Examples:
  agentctl limits show acme --profile operator
  agentctl limits set acme requests_per_min=600 cost_usd_per_day=20 --profile operator
  agentctl limits set acme 'models=[\"openai/*\"]' turns_per_day=null --profile operator";

/// Shows and sets the limits of a tenant; needs the operator's key
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Limits {
    Show(Show),
    Set(Set),
}

impl Limits {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Show(command) => command.run(context).await,
            Self::Set(command) => command.run(context).await,
        }
    }
}

/// Shows the limits of a tenant; the deployment's defaults are not among them
#[derive(clap::Args)]
pub(crate) struct Show {
    /// Tenant that has the limits
    tenant: String,
}

impl Show {
    async fn run(self, context: &Context) -> Result<()> {
        let tenant: Value = context.api()?.get(&route(&self.tenant)).json().await?;
        print(context, &tenant)
    }
}

/// Sets limits; those that are not named stay
#[derive(clap::Args)]
pub(crate) struct Set {
    /// Tenant that has the limits
    tenant: String,
    /// Limits as NAME=VALUE, where VALUE is JSON; `null` removes the limit
    #[arg(required = true, value_name = "NAME=VALUE")]
    limits: Vec<String>,
}

impl Set {
    async fn run(self, context: &Context) -> Result<()> {
        let limits = self.limits.iter().map(|limit| parse(limit)).collect::<Result<Map<_, _>>>()?;
        let request =
            context.api()?.patch(&route(&self.tenant)).body_json(&json!({ "limits": limits })).json().await?;
        print(context, &request)
    }
}

fn parse(limit: &str) -> Result<(String, Value)> {
    let wrong = || Error::Usage(format!("{limit:?} is not NAME=VALUE, where VALUE is JSON"));
    let (name, value) = limit.split_once('=').ok_or_else(wrong)?;
    Ok((name.to_owned(), serde_json::from_str(value).map_err(|_| wrong())?))
}

fn print(context: &Context, tenant: &Value) -> Result<()> {
    let limits =
        tenant.get("limits").filter(|limits| !limits.is_null()).cloned().unwrap_or_else(|| json!({}));
    context.out.value(&limits, |limits| match fields(limits) {
        text if text.is_empty() => "no limits".into(),
        text => text,
    })
}
