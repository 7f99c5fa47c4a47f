//! `agentctl tenants`.

use super::{memory::confirm, send::read_json};
use crate::{
    api::segment,
    context::Context,
    error::{Error, Result},
    output::fields,
};
use serde_json::{Value, json};
use std::path::PathBuf;

pub(super) const TENANTS: &str = "/v1/admin/tenants";

const EXAMPLES: &str = "\
Examples:
  agentctl login --profile operator
  agentctl tenants create acme --name 'Acme Inc.' --profile operator
  agentctl tenants list --profile operator
  agentctl tenants rm acme --yes --profile operator";

/// Lists, creates, changes and deletes tenants; needs the operator's key
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Tenants {
    List(List),
    Show(Show),
    Create(Create),
    Update(Update),
    Rm(Rm),
}

impl Tenants {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::List(command) => command.run(context).await,
            Self::Show(command) => command.run(context).await,
            Self::Create(command) => command.run(context).await,
            Self::Update(command) => command.run(context).await,
            Self::Rm(command) => command.run(context).await,
        }
    }
}

/// Lists tenants by id
#[derive(clap::Args)]
pub(crate) struct List {}

impl List {
    async fn run(self, context: &Context) -> Result<()> {
        let tenants = context.api()?.list(TENANTS, &[], usize::MAX).await?;
        context.out.list(&tenants, &["id", "created_at", "shard", "name"])
    }
}

/// Shows a tenant
#[derive(clap::Args)]
pub(crate) struct Show {
    /// Tenant to show
    tenant: String,
}

impl Show {
    async fn run(self, context: &Context) -> Result<()> {
        let tenant: Value = context.api()?.get(&route(&self.tenant)).json().await?;
        context.out.value(&tenant, fields)
    }
}

/// Creates a tenant
#[derive(clap::Args)]
pub(crate) struct Create {
    /// Id of the tenant [default: one of the server]
    tenant: Option<String>,
    /// Name for people
    #[arg(long)]
    name: Option<String>,
}

impl Create {
    async fn run(self, context: &Context) -> Result<()> {
        let mut body = json!({});
        for (name, value) in [("id", self.tenant), ("name", self.name)] {
            if let Some(value) = value {
                body[name] = value.into();
            }
        }
        let tenant: Value = context.api()?.post(TENANTS).body_json(&body).json().await?;
        context.out.value(&tenant, fields)
    }
}

/// Changes a tenant: its name, its identity provider, its permission rules
#[derive(clap::Args)]
pub(crate) struct Update {
    /// Tenant to change
    tenant: String,
    /// File with the fields to change, as JSON: `name`, `jwt`, `permissions`, `limits`; `-` reads standard input
    #[arg(value_name = "FILE")]
    changes: PathBuf,
}

impl Update {
    async fn run(self, context: &Context) -> Result<()> {
        let changes = read_json(&self.changes)?;
        let tenant: Value = context.api()?.patch(&route(&self.tenant)).body_json(&changes).json().await?;
        context.out.value(&tenant, fields)
    }
}

/// Deletes a tenant: its keys stop working, and its data is erased in the background
#[derive(clap::Args)]
pub(crate) struct Rm {
    /// Tenant to delete
    tenant: String,
    /// Does not ask
    #[arg(long)]
    yes: bool,
}

impl Rm {
    async fn run(self, context: &Context) -> Result<()> {
        if !self.yes && !confirm(&format!("Delete the tenant {} with all its data?", self.tenant))? {
            return Err(Error::Usage("nothing was deleted".into()));
        }
        context.api()?.delete(&route(&self.tenant)).send().await?;
        context.out.value(&json!({ "deleted": self.tenant }), |_| format!("deleted {}", self.tenant))
    }
}

/// Returns the route of a tenant.
pub(super) fn route(tenant: &str) -> String {
    format!("{TENANTS}/{}", segment(tenant))
}
