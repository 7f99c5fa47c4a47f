//! The `speak` tool.

use super::{Billed, Maker, Output, failed, store};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::media::SpeechRequest;
use crate::types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum length of a text, in characters. Source: the limit of OpenAI's API as of November 2025.
const MAX_TEXT: usize = 4_096;

/// The `speak` tool.
pub struct Speak(pub(super) Maker);

/// The arguments of `speak`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The text, at most 4096 characters.
    text: String,
    /// The provider's name of a voice, such as `alloy`; the default voice if absent.
    voice: Option<String>,
}

impl Tool for Speak {
    type Args = Args;
    type Output = Output;
    const NAME: &'static str = "speak";
    const DESCRIPTION: &'static str =
        "Speaks a text, and stores the recording as a file of this conversation, which the user can play.";
    const EFFECT: Effect = Effect::Network;

    async fn run(&self, args: Args, cx: ToolContext) -> Result<Output, ToolError> {
        let characters = args.text.chars().count();
        if characters > MAX_TEXT {
            return Err(ToolError::new(format!("the text has more than {MAX_TEXT} characters")));
        }
        let work = async {
            let (provider, model) = self.0.find()?;
            let request = SpeechRequest { model, text: args.text, voice: args.voice };
            let made = provider.speak(request).await.map_err(failed)?;
            self.0.bill(&made, &Billed { characters, ..Billed::default() }, &cx);
            store(made.result, "speech", &cx).await
        };
        cx.unless_canceled(work).await?
    }
}
