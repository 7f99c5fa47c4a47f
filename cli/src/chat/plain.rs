//! The conversation without a terminal: each line of standard input is a message, or answers what waits.

use crate::{
    api::Api,
    context::Context,
    error::{Error, Result},
    printer::{Show, print_turn},
    turn::{Turn, TurnResult},
    waits::Wait,
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
            last = chat.finish(Some(result)).await?.map_or(Ok(()), |result| result.check());
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
    /// Asks for decisions and answers until no turn waits. Returns the last result.
    async fn finish(&mut self, mut result: Option<TurnResult>) -> Result<Option<TurnResult>> {
        while let Some((turn, waits)) = Turn::waiting(self.api, self.session).await? {
            for wait in waits {
                self.ask(&wait).await?;
            }
            result = Some(print_turn(self.context.out, Show::of(self.context, false), turn).await?);
        }
        Ok(result)
    }

    /// Reads lines until one resolves the call. The end of the input leaves it waiting.
    async fn ask(&mut self, wait: &Wait) -> Result<()> {
        let out = self.context.out;
        out.note(&format!("waiting: {}", wait.describe()))?;
        if let Some(details) = wait.details() {
            out.note(&details)?;
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
