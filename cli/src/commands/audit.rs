//! `agentctl audit`.

use super::tenants::route;
use crate::{context::Context, error::Result};
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  agentctl audit acme --profile operator
  agentctl audit acme --action key.created --from 2026-11-01T00:00:00Z --profile operator";

/// Lists who did what to which object of a tenant, newest first; needs the operator's key
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Audit {
    /// Tenant whose audit trail is listed
    tenant: String,
    /// Lists only this action, such as `key.created`
    #[arg(long)]
    action: Option<String>,
    /// Start of the time, included
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End of the time, not included
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Maximum number of rows
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

impl Audit {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let filters = [("action", &self.action), ("from", &self.from), ("to", &self.to)];
        let query: Vec<_> =
            filters.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        let mut rows =
            context.api()?.list(&format!("{}/audit", route(&self.tenant)), &query, self.limit).await?;
        if !context.out.json {
            for row in rows.iter_mut().filter_map(Value::as_object_mut) {
                let who = row.get("actor").map(who).unwrap_or_default();
                row.insert("who".to_owned(), who.into());
            }
        }
        context.out.list(&rows, &["at", "who", "action", "object"])
    }
}

/// Names an actor: its user, its key, or the operator.
fn who(actor: &Value) -> String {
    let name = actor["user"].as_str().or(actor["key"].as_str()).or(actor["type"].as_str());
    name.unwrap_or_default().to_owned()
}
