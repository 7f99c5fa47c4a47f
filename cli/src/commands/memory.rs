//! `agentctl memory`.

use crate::{
    context::Context,
    error::{Error, Result},
};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

/// Time between two requests to erase what is left.
const PAUSE: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  agentctl memory add 'Ann prefers trains to planes.'
  agentctl memory search trains
  agentctl memory search 'the offer of the printer' --scope sessions
  agentctl memory log 2026-11-20
  agentctl memory forget --user ann --yes";

/// Searches, adds and erases what is known about a user
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Memory {
    Search(Search),
    Add(Add),
    Log(Log),
    Forget(Forget),
}

impl Memory {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Search(command) => command.run(context).await,
            Self::Add(command) => command.run(context).await,
            Self::Log(command) => command.run(context).await,
            Self::Forget(command) => command.run(context).await,
        }
    }
}

/// Searches facts, or turns of conversations; the best hits come first
#[derive(clap::Args)]
pub(crate) struct Search {
    /// Words to find
    query: String,
    /// What to search
    #[arg(long, value_enum, default_value_t = Scope::Facts)]
    scope: Scope,
    /// Maximum number of hits
    #[arg(long, default_value_t = 10, value_name = "N")]
    limit: u32,
    /// Agent whose memory is searched
    #[arg(long, default_value = "default")]
    agent: String,
}

/// What a search covers.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Scope {
    /// Facts of the daily logs, and MEMORY.md
    Facts,
    /// Turns of sessions, and imported turns
    Sessions,
}

impl Search {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let scope = match self.scope {
            Scope::Facts => "facts",
            Scope::Sessions => "sessions",
        };
        let limit = self.limit.to_string();
        let query = [("q", self.query.as_str()), ("scope", scope), ("limit", &limit), ("agent", &self.agent)];
        let found: Value = api.get("/v1/memory/search").queries(&query).json().await?;
        let hits = found["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        context.out.list(hits, &["ts", "source", "text"])
    }
}

/// Adds facts
#[derive(clap::Args)]
pub(crate) struct Add {
    /// Facts, each a sentence
    #[arg(required = true)]
    facts: Vec<String>,
    /// Agent that learns them
    #[arg(long, default_value = "default")]
    agent: String,
}

impl Add {
    async fn run(self, context: &Context) -> Result<()> {
        let facts: Vec<_> = self.facts.iter().map(|text| json!({ "text": text })).collect();
        let body = json!({"agent": self.agent, "user": context.access()?.user, "facts": facts});
        let added: Value = context.api()?.post("/v1/memory").body_json(&body).json().await?;
        context.out.value(&added, |added| format!("added {} facts", added["added"]))
    }
}

/// Prints the facts of a day
#[derive(clap::Args)]
pub(crate) struct Log {
    /// Day in UTC, as YYYY-MM-DD [default: today]
    date: Option<String>,
    /// Agent whose memory is read
    #[arg(long, default_value = "default")]
    agent: String,
}

impl Log {
    async fn run(self, context: &Context) -> Result<()> {
        let date = self.date.unwrap_or_else(|| chrono::Utc::now().format("%F").to_string());
        let path = format!("/v1/memory/log/{}", crate::api::segment(&date));
        let log = context.api()?.get(&path).query("agent", &self.agent).bytes().await?;
        let text = String::from_utf8_lossy(&log);
        context.out.value(&json!({"date": date, "text": text}), |_| text.trim_end().to_owned())
    }
}

/// Erases everything of a user with all agents: sessions, turns, facts and files
#[derive(clap::Args)]
pub(crate) struct Forget {
    /// Does not ask
    #[arg(long)]
    yes: bool,
}

impl Forget {
    async fn run(self, context: &Context) -> Result<()> {
        let user = context.access()?.user.unwrap_or_else(|| "default".into());
        if !self.yes && !confirm(&format!("Erase everything of the user {user}?"))? {
            return Err(Error::Usage("nothing was erased".into()));
        }
        let api = context.api()?;
        let bar = indicatif::ProgressBar::new_spinner().with_message("erasing");
        // If the profile or an option names the user, each request does so already.
        let unnamed = context.access()?.user.is_none().then_some(user.as_str());
        while api.delete("/v1/memory").maybe("user", unnamed).send().await? != StatusCode::NO_CONTENT {
            bar.tick();
            tokio::time::sleep(PAUSE).await;
        }
        bar.finish_and_clear();
        context.out.value(&json!({ "erased": user }), |_| format!("erased the user {user}"))
    }
}

/// Asks a person to confirm; without one, the answer is no.
pub(crate) fn confirm(question: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Error::Usage("this cannot be undone; confirm it with --yes".into()));
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
