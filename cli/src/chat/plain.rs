//! The conversation without a terminal: each line of standard input is a message, or answers what waits.

use crate::{
    api::Api,
    context::Context,
    error::Result,
    interrupt::Interrupts,
    printer::{Show, print_turn},
    prompt::Prompt,
    turn::{Turn, TurnResult},
    waits::Wait,
};
use serde_json::json;

/// Reads messages and prints replies until the input ends. Beside a runner, it leaves the calls of local tools to it.
///
/// # Errors
/// What the server refuses; `Waiting` and `NoReply` if the last turn has no reply.
pub(crate) async fn run(context: &Context, api: &Api, session: &str, is_served: bool) -> Result<()> {
    let interrupts = Interrupts::listen()?;
    let mut chat = Plain { context, api, session, is_served, prompt: Prompt::new(), interrupts };
    let mut last = Ok(());
    // The session may wait since an earlier chat.
    chat.finish(None).await?;
    while let Some(line) = chat.interrupts.unless(chat.prompt.line()).await? {
        if !line.trim().is_empty() {
            let message = json!({ "content": line });
            let turn = chat.interrupts.unless(Turn::post(api, session, "messages", &[], &message)).await?;
            let result = chat.print(turn).await?;
            last = chat.finish(Some(result)).await?.map_or(Ok(()), |result| result.check());
        }
    }
    last
}

struct Plain<'a> {
    context: &'a Context,
    api: &'a Api,
    session: &'a str,
    is_served: bool,
    prompt: Prompt,
    interrupts: Interrupts,
}

impl Plain<'_> {
    async fn print(&mut self, turn: Turn) -> Result<TurnResult> {
        let started = std::future::ready(Ok(turn));
        print_turn(self.context.out, Show::of(self.context, false), started, &mut self.interrupts).await
    }

    /// Asks for decisions and answers until no turn waits. Returns the last result.
    async fn finish(&mut self, mut result: Option<TurnResult>) -> Result<Option<TurnResult>> {
        while let Some((turn, waits)) = self.interrupts.unless(Turn::waiting(self.api, self.session)).await? {
            for wait in waits {
                if !(self.is_served && wait.is_local()) {
                    self.ask(&wait).await?;
                }
            }
            result = Some(self.print(turn).await?);
        }
        Ok(result)
    }

    /// Reads lines until one resolves the call. The end of the input leaves it waiting.
    async fn ask(&mut self, wait: &Wait) -> Result<()> {
        let resolution = self.interrupts.unless(self.prompt.resolution(self.context.out, wait)).await?;
        self.interrupts.unless(wait.resolve(self.api, &resolution)).await.map(drop)
    }
}
