//! The `speak` tool.

use super::{BilledUnits, ConfiguredModel, Output, store};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::media::SpeechRequest;
use crate::types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum length of a text, in characters. Source: the limit of OpenAI's API as of November 2025.
const MAX_TEXT: usize = 4_096;

/// The `speak` tool.
pub struct Speak(pub(super) ConfiguredModel);

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
        "Speaks a text, and stores the recording as a file of this conversation, which the user can open.";
    const EFFECT: Effect = Effect::Network;

    async fn run(&self, args: Args, cx: ToolContext) -> Result<Output, ToolError> {
        let characters = args.text.chars().count();
        if characters > MAX_TEXT {
            return Err(ToolError::new(format!("the text has more than {MAX_TEXT} characters")));
        }
        let work = async {
            let (provider, model) = self.0.find(&cx)?;
            let request = SpeechRequest { model, text: args.text, voice: args.voice };
            let response = provider.speak(request).await.map_err(|error| self.0.failed(&cx, error))?;
            self.0.count_usage(&response, &BilledUnits { characters, ..BilledUnits::default() }, &cx);
            store(response.result, "speech", &cx).await
        };
        cx.unless_canceled(work).await?
    }
}
