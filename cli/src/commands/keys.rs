//! `agentctl keys`.

use super::tenants::route;
use crate::{api::segment, context::Context, error::Result};
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  agentctl keys create acme --name phone-app --scope chat --scope read --profile operator
  agentctl keys list acme --profile operator
  agentctl keys revoke acme key_01a21a0037d87f94 --profile operator";

/// Lists, creates and revokes the keys of a tenant; needs the operator's key
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Keys {
    List(List),
    Create(Create),
    Revoke(Revoke),
}

impl Keys {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::List(command) => command.run(context).await,
            Self::Create(command) => command.run(context).await,
            Self::Revoke(command) => command.run(context).await,
        }
    }
}

/// Lists the keys of a tenant, without the keys themselves
#[derive(clap::Args)]
pub(crate) struct List {
    /// Tenant that has the keys
    tenant: String,
}

impl List {
    async fn run(self, context: &Context) -> Result<()> {
        let keys = context.api()?.list(&format!("{}/keys", route(&self.tenant)), &[], usize::MAX).await?;
        context.out.list(&keys, &["id", "scopes", "created_at", "expires_at", "name"])
    }
}

/// Creates a key, and prints it: it is not shown again
#[derive(clap::Args)]
pub(crate) struct Create {
    /// Tenant that gets the key
    tenant: String,
    /// Name for people
    #[arg(long)]
    name: Option<String>,
    /// What the key may do: `chat`, `read`, `approve`, `admin`; repeat the option for several [default: chat and read]
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Time at which the key expires, such as 2027-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
}

impl Create {
    async fn run(self, context: &Context) -> Result<()> {
        let mut body = json!({});
        if let Some(name) = self.name {
            body["name"] = name.into();
        }
        if !self.scopes.is_empty() {
            body["scopes"] = self.scopes.into();
        }
        if let Some(time) = self.expires_at {
            body["expires_at"] = time.into();
        }
        let key: Value =
            context.api()?.post(&format!("{}/keys", route(&self.tenant))).body_json(&body).json().await?;
        context.out.value(&key, |key| key["key"].as_str().unwrap_or_default().to_owned())
    }
}

/// Revokes a key
#[derive(clap::Args)]
pub(crate) struct Revoke {
    /// Tenant that has the key
    tenant: String,
    /// Id of the key
    key: String,
}

impl Revoke {
    async fn run(self, context: &Context) -> Result<()> {
        let path = format!("{}/keys/{}", route(&self.tenant), segment(&self.key));
        context.api()?.delete(&path).send().await?;
        context.out.value(&json!({ "revoked": self.key }), |_| format!("revoked {}", self.key))
    }
}
