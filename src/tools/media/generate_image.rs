//! The tools `generate_image` and `edit_image`.

use super::{BilledUnits, ConfiguredModel, Output, read, store};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::media::{ImageRequest, MediaFile};
use crate::types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum length of a prompt, in characters.
const MAX_PROMPT: usize = 4_000;

/// The `generate_image` tool.
pub struct GenerateImage(pub(super) ConfiguredModel);

/// The arguments of `generate_image`.
#[derive(Deserialize, JsonSchema)]
pub struct GenerateArgs {
    /// What the image shows, in detail: at most 4000 characters.
    prompt: String,
    /// The shape; the model's default if absent.
    shape: Option<Shape>,
}

/// The `edit_image` tool.
pub struct EditImage(pub(super) ConfiguredModel);

/// The arguments of `edit_image`.
#[derive(Deserialize, JsonSchema)]
pub struct EditArgs {
    /// The image's artifact id, such as `art_…`.
    r#ref: String,
    /// What to change: at most 4000 characters.
    prompt: String,
}

/// The shape of an image.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// As wide as high.
    Square,
    /// Higher than wide.
    Portrait,
    /// Wider than high.
    Landscape,
}

impl Shape {
    /// Returns the width and height: sizes that the models of OpenAI and Workers AI support.
    fn size(self) -> &'static str {
        match self {
            Self::Square => "1024x1024",
            Self::Portrait => "1024x1536",
            Self::Landscape => "1536x1024",
        }
    }
}

impl Tool for GenerateImage {
    type Args = GenerateArgs;
    type Output = Output;
    const NAME: &'static str = "generate_image";
    const DESCRIPTION: &'static str = "Creates an image from a description, and stores it as a file of this conversation, which the user can open.";
    const EFFECT: Effect = Effect::Network;

    async fn run(&self, args: GenerateArgs, cx: ToolContext) -> Result<Output, ToolError> {
        cx.unless_canceled(make(&self.0, args.prompt, args.shape, None, &cx)).await?
    }
}

impl Tool for EditImage {
    type Args = EditArgs;
    type Output = Output;
    const NAME: &'static str = "edit_image";
    const DESCRIPTION: &'static str =
        "Changes an image of this conversation as described, and stores the result as a new file.";
    const EFFECT: Effect = Effect::Network;

    async fn run(&self, args: EditArgs, cx: ToolContext) -> Result<Output, ToolError> {
        let work = async {
            let original = read(&args.r#ref, "image/", &cx).await?;
            make(&self.0, args.prompt, None, Some(original), &cx).await
        };
        cx.unless_canceled(work).await?
    }
}

async fn make(
    configured: &ConfiguredModel,
    prompt: String,
    shape: Option<Shape>,
    original: Option<MediaFile>,
    cx: &ToolContext,
) -> Result<Output, ToolError> {
    if prompt.chars().count() > MAX_PROMPT {
        return Err(ToolError::new(format!("the prompt has more than {MAX_PROMPT} characters")));
    }
    let (provider, model) = configured.find(cx)?;
    let size = shape.map(|shape| shape.size().to_owned());
    let response = provider.image(ImageRequest { model, prompt, size, original }).await;
    let response = response.map_err(|error| configured.failed(cx, error))?;
    configured.count_usage(&response, &BilledUnits { images: 1, ..BilledUnits::default() }, cx);
    store(response.result, "image", cx).await
}
