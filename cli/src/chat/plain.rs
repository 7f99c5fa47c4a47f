//! The conversation without a terminal: each line of standard input is a message, or answers what waits.

use crate::{
    api::{Api, segment},
    context::Context,
    error::{Error, Result},
    printer::{Show, print_turn},
    turn::{Turn, TurnResult},
    waits::Wait,
    wire::Session,
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

/// Reads messages and prints replies until the input ends.
///
/// # Errors
/// What the server refuses; `Waiting` and `NoReply` if the last turn has no reply.
pub(crate) async fn run(context: &Context, api: &Api, session: &str) -> Result<()> {
    let mut chat = Plain { context, api, session, lines: BufReader::new(tokio::io::stdin()).lines() };
    let mut last = Ok(());
    // The session may wait since an earlier chat.
    chat.finish(None).await?;
    while let Some(line) = chat.lines.next_line().await? {
        if !line.trim().is_empty() {
            let turn = Turn::post(api, session, "messages", &[], &json!({ "content": line })).await?;
            let result = print_turn(context.out, Show::of(context, false), turn).await?;
            last = chat.finish(Some(result)).await?.check();
        }
    }
    last
}

struct Plain<'a> {
    context: &'a Context,
    api: &'a Api,
    session: &'a str,
    lines: Lines<BufReader<Stdin>>,
}

impl Plain<'_> {
    /// Asks for decisions and answers until the turn has ended.
    async fn finish(&mut self, result: Option<TurnResult>) -> Result<TurnResult> {
        let mut result = match result {
            Some(result) => result,
            None => self.state().await?.1,
        };
        while result.status == "waiting" {
            let (session, _) = self.state().await?;
            for wait in Wait::all(self.session, &result.pending) {
                self.ask(&wait).await?;
            }
            let turn = session.current_turn.unwrap_or_default();
            let turn = Turn::follow(self.api, self.session, &turn, &session.last_seq.to_string());
            result = print_turn(self.context.out, Show::of(self.context, false), turn).await?;
        }
        Ok(result)
    }

    /// Returns the session, and its turn as far as it waits.
    async fn state(&self) -> Result<(Session, TurnResult)> {
        let session: Session =
            self.api.get(&format!("/v1/sessions/{}", segment(self.session))).json().await?;
        let status = if session.status == "waiting" { "waiting" } else { "completed" };
        let result =
            TurnResult { status: status.into(), pending: session.pending.clone(), json: json!(null) };
        Ok((session, result))
    }

    /// Reads lines until one resolves the call. The end of the input leaves it waiting.
    async fn ask(&mut self, wait: &Wait) -> Result<()> {
        let out = self.context.out;
        out.note(&format!("waiting: {}", wait.describe()))?;
        if let Some(plan) = wait.call.payload["plan"].as_str() {
            out.note(plan)?;
        }
        for (number, option) in wait.options().iter().enumerate() {
            out.note(&format!("  {}. {option}", number + 1))?;
        }
        loop {
            out.note(&format!("({})", wait.hint()))?;
            let line = self.lines.next_line().await?.ok_or(Error::Waiting)?;
            if let Some(resolution) = wait.read(&line) {
                return wait.resolve(self.api, &resolution).await.map(drop);
            }
        }
    }
}
