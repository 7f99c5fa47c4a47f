//! `agentctl doctor`.

use super::login::check;
use crate::{
    api::Api,
    context::Context,
    error::{Error, Result},
    profile::Profiles,
};
use serde_json::{Value, json};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  agentctl doctor
  agentctl doctor --profile work --json";

/// Checks the configuration, the connection, the server and the key
///
/// The exit code is 1 if a check fails.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {}

/// The result of a check: what was found, or what is wrong.
type Check = Result<String>;

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let mut failed = 0;
        for (name, check) in checks(context).await {
            let is_ok = check.is_ok();
            failed += usize::from(!is_ok);
            let detail = check.unwrap_or_else(|error| error.to_string());
            let mark = if is_ok { "ok  " } else { "FAIL" };
            context.out.value(&json!({"check": name, "ok": is_ok, "detail": detail}), |_| {
                format!("{mark} {name}: {detail}")
            })?;
        }
        if failed == 0 { Ok(()) } else { Err(Error::Incomplete(format!("{failed} checks failed"))) }
    }
}

/// Runs the checks in order. A check that needs an earlier one that failed is left out.
async fn checks(context: &Context) -> Vec<(&'static str, Check)> {
    let mut done = vec![("configuration", configuration())];
    let access = match context.access() {
        Ok(access) => access,
        Err(error) => {
            done.push(("profile", Err(error)));
            return done;
        }
    };
    let from = access
        .profile
        .map_or_else(|| "environment and defaults".to_owned(), |name| format!("profile {name}"));
    done.push(("profile", Ok(format!("{from}, {}", access.url))));
    let has_key = access.key.is_some();
    let api = match Api::new(&access.url, access.key, access.user) {
        Ok(api) => api,
        Err(error) => {
            done.push(("server", Err(error)));
            return done;
        }
    };
    let server = reach(&api.without_key()).await;
    let is_reached = server.is_ok();
    done.push(("server", server));
    if is_reached {
        done.push(("readiness", readiness(&api.without_key()).await));
        let missing = || Err(Error::Usage("missing; run agentctl login, or set EDGE_HARNESS_KEY".into()));
        let key =
            if has_key { check(&api).await.map(|role| format!("valid, a {role}'s")) } else { missing() };
        done.push(("key", key));
    }
    done
}

fn configuration() -> Check {
    let profiles = Profiles::open()?;
    let count = profiles.config()?.profiles.len();
    Ok(format!("{count} profiles in {}", profiles.folder().display()))
}

async fn reach(api: &Api) -> Check {
    let begun = Instant::now();
    api.get("/healthz").once().await?;
    Ok(format!("responds in {} ms", begun.elapsed().as_millis()))
}

async fn readiness(api: &Api) -> Check {
    let ready: Value = api.get("/readyz").json().await?;
    Ok(format!("version {}, schema {}", ready["version"].as_str().unwrap_or("unknown"), ready["schema"]))
}
