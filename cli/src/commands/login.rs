//! `agentctl login`.

use crate::{
    api::Api,
    context::Context,
    error::{Error, Result},
    profile::{Config, DEFAULT_PROFILE, DEFAULT_URL, KeyStore, Profiles},
};
use serde_json::json;
use std::io::{self, IsTerminal as _, Write as _};

const EXAMPLES: &str = "\
Examples:
  agentctl login --url http://localhost:8787
  agentctl login --profile work --url https://agents.example.com --user ann
  echo \"$KEY\" | agentctl login --profile ci --url https://agents.example.com --store file
  agentctl login --list
  agentctl login --use work
  agentctl login --remove ci";

/// Stores the URL and the key of a server as a profile
///
/// The key is read without an echo, or from standard input. It is checked, and then stored in the keyring of the operating
/// system. Without a keyring it is stored in a file that only you can read. The first profile is the default one. A profile
/// that exists keeps its URL and its user, unless you name others.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Login {
    /// Where to store the key [default: the keyring, if there is one]
    #[arg(long, value_enum)]
    store: Option<KeyStore>,
    /// Lists the profiles
    #[arg(long, conflicts_with_all = ["choose", "remove", "store"])]
    list: bool,
    /// Makes a profile the default
    #[arg(long = "use", value_name = "PROFILE", conflicts_with = "remove")]
    choose: Option<String>,
    /// Removes a profile and its key
    #[arg(long, value_name = "PROFILE")]
    remove: Option<String>,
}

impl Login {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let profiles = Profiles::open()?;
        if self.list {
            return list(context, &profiles.config()?);
        }
        if let Some(name) = self.choose {
            profiles.choose(&name)?;
            return context.out.value(&json!({ "default": name }), |_| format!("{name} is the default"));
        }
        if let Some(name) = self.remove {
            profiles.remove(&name)?;
            return context.out.value(&json!({ "removed": name }), |_| format!("removed {name}"));
        }
        let name = context.global.profile.as_deref().unwrap_or(DEFAULT_PROFILE);
        // A new key for an existing profile leaves its server and its user as they are.
        let old = profiles.config()?.profiles.remove(name);
        let stored = old.as_ref().map(|old| old.url.clone());
        let environment = std::env::var("EDGE_HARNESS_URL").ok().filter(|url| !url.is_empty());
        // As for other commands, the environment replaces only a profile that is not named.
        let is_named = context.global.profile.is_some();
        let known = if is_named { stored.or(environment) } else { environment.or(stored) };
        let url = context.global.url.clone().or(known).unwrap_or_else(|| DEFAULT_URL.into());
        let key = read_key(&url)?;
        let user = context.global.user.clone().or_else(|| old.filter(|old| old.url == url)?.user);
        let api = Api::new(&url, Some(key.clone()), user.clone())?;
        context.warn(&api);
        let role = check(&api).await?;
        let store = profiles.store(name, &url, user, &key, self.store)?;
        let place = match store {
            KeyStore::Keyring => "the keyring".to_owned(),
            KeyStore::File => profiles.folder().join("keys.toml").display().to_string(),
        };
        let stored = json!({"profile": name, "url": url, "role": role, "store": store});
        context
            .out
            .value(&stored, |_| format!("stored the {role}'s key of {url} in {place}, as the profile {name}"))
    }
}

fn list(context: &Context, config: &Config) -> Result<()> {
    let profiles = config.profiles.iter().map(|(name, profile)| {
        let is_default = config.default.as_ref() == Some(name);
        json!({"name": name, "url": profile.url, "user": profile.user, "store": profile.key, "default": is_default})
    });
    context.out.list(&profiles.collect::<Vec<_>>(), &["name", "default", "store", "user", "url"])
}

fn read_key(url: &str) -> Result<String> {
    let mut key = String::new();
    if io::stdin().is_terminal() {
        eprint!("Key for {url}: ");
        io::stderr().flush()?;
        key = rpassword::read_password()?;
    } else {
        io::stdin().read_line(&mut key)?;
    }
    match key.trim() {
        "" => Err(Error::Usage("there is no key on standard input".into())),
        key => Ok(key.to_owned()),
    }
}

/// Checks a key, and returns whose it is. The operator's key opens only the routes of the operator.
pub(super) async fn check(api: &Api) -> Result<&'static str> {
    match api.get("/v1/sessions").query("limit", "1").send().await {
        Ok(_) => Ok("tenant"),
        // A proxy in between may respond 403, too.
        Err(Error::Refused(problem)) if problem.code == "missing_scope" => {
            match api.get("/v1/admin/tenants").query("limit", "1").send().await {
                Ok(_) => Ok("operator"),
                // A key of a tenant may lack the scope to read.
                Err(Error::Refused(problem)) if problem.code == "missing_scope" => Ok("tenant"),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}
