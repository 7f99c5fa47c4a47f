//! `agentctl chat`.

#[cfg(target_os = "linux")]
use crate::runner::{Options, serve_beside};
use crate::{
    api::{Api, segment},
    chat::{run_plain, run_terminal},
    context::Context,
    error::{Error, Result},
};
use serde_json::{Value, json};
use std::io::{self, IsTerminal as _};

const EXAMPLES: &str = "\
Keys:
  Enter          sends the message; Alt-Enter or Ctrl-J begins a new line
  Ctrl-C         aborts the turn; a second one leaves
  Shift-Tab      switches the mode
  Up, Down       earlier messages
  PgUp, PgDn     scroll; Ctrl-O shows tool calls in full
  y n A C        approve, decline, always allow the tool, always allow its category
  Space          begins a reason to decline, whatever its first letter is
In a terminal, these messages are commands:
  /mode NAME  /model NAME  /steer TEXT  /abort  /drop N  /compact  /quit

Examples:
  agentctl chat
  agentctl chat notes
  agentctl chat --continue
  printf 'Hello\\nAnd now?\\n' | agentctl chat notes
  agentctl chat fix --agent coder --root . --verify 'make test'";

/// Talks to an agent in the terminal
///
/// The conversation appears while it is written: text, tool calls, and what waits for you. When standard input or output is
/// no terminal, each line of input is a message, or the answer to what waits. A session continues where it was, also after
/// a lost connection.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[cfg_attr(target_os = "linux", command(mut_arg("root", |root| root.required(false))))]
pub(crate) struct Chat {
    /// Session to continue, or the id of a new one [default: a new session]
    session: Option<String>,
    /// Continues the newest session
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    newest: bool,
    /// Agent of a new session
    #[arg(long)]
    agent: Option<String>,
    /// Mode of the session
    #[arg(long)]
    mode: Option<String>,
    /// Model of the session
    #[arg(long)]
    model: Option<String>,
    /// Does not draw: each line of input is a message
    #[arg(long)]
    plain: bool,
    #[cfg(target_os = "linux")]
    #[command(flatten, next_help_heading = "Options of a runner, which --root starts beside the chat")]
    runner: Option<Options>,
}

impl Chat {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let session = self.open(&api).await?;
        #[cfg(target_os = "linux")]
        if let Some(options) = &self.runner {
            let machine = options.machine(context).await?;
            return serve_beside(&api, &session, &machine, self.talk(context, &api, &session, true)).await;
        }
        self.talk(context, &api, &session, false).await
    }

    async fn talk(&self, context: &Context, api: &Api, session: &str, is_served: bool) -> Result<()> {
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        if self.plain || context.out.json || !is_terminal {
            run_plain(context, api, session, is_served).await
        } else {
            run_terminal(api, session, is_served).await?;
            context.out.note(&format!("continue with: agentctl chat {session}"));
            Ok(())
        }
    }

    /// Returns the id of the session, which exists from then on.
    async fn open(&self, api: &Api) -> Result<String> {
        let session = match (&self.session, self.newest) {
            (_, true) => {
                let sessions = api.list("/v1/sessions", &[], 1).await?;
                let newest = sessions.first().and_then(|session| session["id"].as_str());
                newest.ok_or_else(|| Error::not_found("there is no session yet"))?.to_owned()
            }
            (session, false) => {
                let mut body = json!({});
                for (name, value) in [("id", session), ("agent", &self.agent)] {
                    if let Some(value) = value {
                        body[name] = value.as_str().into();
                    }
                }
                let session: Value = api.post("/v1/sessions").body_json(&body).json().await?;
                session["id"].as_str().unwrap_or_default().to_owned()
            }
        };
        let mut changes = json!({});
        for (name, value) in [("mode", &self.mode), ("model", &self.model)] {
            if let Some(value) = value {
                changes[name] = value.as_str().into();
            }
        }
        if changes != json!({}) {
            api.patch(&format!("/v1/sessions/{}", segment(&session))).body_json(&changes).send().await?;
        }
        Ok(session)
    }
}
