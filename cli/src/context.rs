//! What all commands share: the global options, the server, the output.

use crate::{
    api::Api,
    error::{Error, Result},
    output::Output,
    profile::{Access, Choice, Profiles},
};
use std::env;

/// The options of every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// Prints JSON: one value on each line
    #[arg(long, global = true)]
    pub json: bool,
    /// URL of the server [default: EDGE_HARNESS_URL, the profile's, or http://localhost:8787]
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// Profile that `agentctl login` stored [default: the first one, unless EDGE_HARNESS_URL or EDGE_HARNESS_KEY is set]
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
    /// User whose data the command concerns, if the key is one of a tenant [default: the profile's]
    #[arg(long, global = true, value_name = "USER")]
    pub user: Option<String>,
}

/// The environment of a command.
pub struct Context {
    /// The options of every command.
    pub global: Global,
    /// Where the command prints.
    pub out: Output,
}

impl Context {
    /// Creates the context of a command.
    pub fn new(global: Global) -> Self {
        let out = Output { json: global.json };
        Self { global, out }
    }

    /// Returns the server and the credential.
    ///
    /// # Errors
    /// An unknown profile, and a store of keys that cannot be read.
    pub fn access(&self) -> Result<Access> {
        let Global { profile, url, user, .. } = self.global.clone();
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let (env_url, env_key) = (variable("EDGE_HARNESS_URL"), variable("EDGE_HARNESS_KEY"));
        Profiles::open()?.access(Choice { profile, url, user, env_url, env_key })
    }

    /// Returns a client with a credential.
    ///
    /// # Errors
    /// A missing credential, and those of [`Context::access`].
    pub fn api(&self) -> Result<Api> {
        let Access { url, key, user, .. } = self.access()?;
        if key.is_none() {
            let hint = "run agentctl login, or set EDGE_HARNESS_KEY";
            return Err(Error::Usage(format!("there is no key for {url}: {hint}")));
        }
        let api = Api::new(&url, key, user)?;
        self.warn(&api);
        Ok(api)
    }

    /// Warns of a key that others on the network can read.
    pub fn warn(&self, api: &Api) {
        if api.is_exposed() {
            self.out.note("warning: the key is sent without encryption; use an https:// URL");
        }
    }
}
