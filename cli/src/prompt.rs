//! Asks a person for decisions and answers, line by line.

use crate::{
    error::{Error, Result},
    output::Output,
    waits::{Resolution, Wait},
};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

/// Reads lines of standard input.
pub struct Prompt(Lines<BufReader<Stdin>>);

impl Prompt {
    /// Begins to read standard input.
    pub fn new() -> Self {
        Self(BufReader::new(tokio::io::stdin()).lines())
    }

    /// Reads a line; `None` at the end of the input.
    ///
    /// # Errors
    /// An input that cannot be read.
    pub async fn line(&mut self) -> Result<Option<String>> {
        Ok(self.0.next_line().await?)
    }

    /// Shows a call that waits, and reads lines until one resolves it.
    ///
    /// # Errors
    /// `Waiting` at the end of the input.
    pub async fn resolution(&mut self, out: Output, wait: &Wait) -> Result<Resolution> {
        out.note(&format!("waiting: {}", wait.explain()));
        loop {
            out.note(&format!("({})", wait.hint()));
            let line = self.line().await?.ok_or(Error::Waiting)?;
            if let Some(resolution) = wait.read(&line) {
                return Ok(resolution);
            }
        }
    }
}
