//! The progress of a call that a server has interrupted with questions: what it needs to be sent again.

use super::connection::Connection;
use super::consent::{self, Occasion};
use super::elicitation;
use super::error::McpError;
use super::oauth::{Asked, Challenge};
use crate::agent::ToolContext;
use crate::ports::AllowedHosts;
use crate::types::{DenyReason, Invalid, ToolOutcome, Wait, json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Maximum number of times that a server can ask during a call.
const MAX_ROUNDS: u32 = 10;
/// Maximum number of questions at a time.
const MAX_QUESTIONS: usize = 10;
/// Maximum size of the state that a server keeps with the client, in bytes.
const MAX_STATE: usize = 64 << 10;
/// Why a person cannot be asked.
const UNASKABLE: &str = "asks for input that a person cannot be asked for here";

/// The progress of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The id of the last request. The next one must have another.
    pub id: u64,
    /// The address of the server, as the agent names it. No other server gets the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// How often the server has asked.
    rounds: u32,
    /// The server's state, which goes back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// The questions without an answer, with the server's names for them. The person sees the first one.
    questions: Vec<(String, Value)>,
    /// The responses to the answered questions.
    responses: Map<String, Value>,
    /// The answered questions of a legacy server and the responses, in order. Such a server asks on the connection of a
    /// call, which does not stay open until a person has answered: when the call is sent again, it asks them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answered: Vec<(Value, Value)>,
    /// Whether the question is one of a legacy server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_legacy: bool,
    /// The request for consent that the user answers, in place of a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    consent: Option<String>,
    /// Whether the code of the user does not confirm that request.
    #[serde(skip)]
    has_wrong_code: bool,
}

impl Progress {
    /// Returns the progress of a call that starts, or that goes on with an answer.
    ///
    /// # Errors
    /// The outcome of a call that cannot go on. One whose progress cannot be read must not start again.
    pub async fn continued(connection: &Connection, cx: &ToolContext) -> Result<Self, ToolOutcome> {
        let stored = cx.progress.clone().map(json::from_value::<Self>).transpose();
        let unreadable =
            |error| ToolOutcome::failure(format!("the progress of the call cannot be read: {error}"));
        let mut progress = stored.map_err(unreadable)?.unwrap_or_default();
        let url = &connection.server().url;
        if progress.url.as_ref().is_some_and(|asked| asked != url) {
            return Err(ToolOutcome::failure(
                "another server has taken the place of the one that has asked; call again",
            ));
        }
        progress.url = Some(url.clone());
        let Some(answer) = &cx.answer else { return Ok(progress) };
        match progress.consent.take() {
            Some(request) => progress.confirm(request, answer, connection, cx).await,
            None => match progress.answer(answer) {
                Ok(()) => Ok(progress),
                Err(why) => Err(ToolOutcome::failure(why.0)),
            },
        }
    }

    /// Connects the user who was asked for consent.
    async fn confirm(
        self,
        request: String,
        answer: &Value,
        connection: &Connection,
        cx: &ToolContext,
    ) -> Result<Self, ToolOutcome> {
        let Some(code) = consent::code(&cx.shown, answer) else {
            let reason = "the user has not given consent at the server";
            return Err(ToolOutcome::denied(DenyReason::Declined, reason));
        };
        match connection.confirm_consent(&request, &code, &cx.user).await {
            // The call goes on. Without the token that it needs, it waits again.
            Ok(is_confirmed) => Ok(Self { has_wrong_code: !is_confirmed, ..self }),
            Err(error) if error.is_transient() && self.rounds < MAX_ROUNDS => {
                let progress = Self { rounds: self.rounds + 1, consent: Some(request), ..self };
                Err(cx.wait(Wait::Auth(consent::again(&cx.shown)), progress.to_json()))
            }
            Err(error) => Err(failure(connection, &error)),
        }
    }

    /// Checks an answer to what was shown.
    ///
    /// # Errors
    /// What a valid answer looks like.
    pub fn check_answer(shown: &Value, answer: &Value) -> Result<(), Invalid> {
        elicitation::response(shown, answer).map(drop)
    }

    /// Suspends the call until the user has given consent at its server.
    pub async fn wait_for_consent(
        self,
        connection: &Connection,
        challenge: &Challenge,
        cx: &ToolContext,
    ) -> ToolOutcome {
        let asked = match self.rounds {
            MAX_ROUNDS => Err(McpError::Consent("it asks for consent again and again".into())),
            _ => connection.ask_for_consent(challenge, &cx.user).await,
        };
        match asked {
            Ok(Asked { request, url }) => {
                let occasion = if self.has_wrong_code { Occasion::WrongCode } else { Occasion::New };
                let shown = consent::question(connection, &url, occasion);
                let progress = Self { rounds: self.rounds + 1, consent: Some(request), ..self };
                cx.wait(Wait::Auth(shown), progress.to_json())
            }
            Err(error) => failure(connection, &error),
        }
    }

    /// Returns the question that the person answers next.
    pub fn question(&self) -> Option<&Value> {
        self.questions.first().map(|(_, question)| question)
    }

    /// Stores the answer to the question that was shown.
    ///
    /// # Errors
    /// What a valid answer looks like.
    fn answer(&mut self, answer: &Value) -> Result<(), Invalid> {
        if let Some((_, question)) = self.questions.first() {
            let response = elicitation::response(question, answer)?;
            let (name, question) = self.questions.remove(0);
            if self.is_legacy {
                self.answered.push((question, response));
            } else {
                self.responses.insert(name, response);
            }
        }
        Ok(())
    }

    /// Adds what the server has asked for to the parameters of the call.
    pub fn add_to(&self, params: &mut Map<String, Value>) {
        if !self.responses.is_empty() {
            params.insert("inputResponses".into(), self.responses.clone().into());
        }
        if let Some(state) = &self.state {
            params.insert("requestState".into(), state.as_str().into());
        }
    }

    /// Reads a result by which the server asks for input, in response to the request with this id.
    ///
    /// # Errors
    /// Why the person cannot be asked, as the end of a sentence about the server.
    pub fn next(&self, id: u64, server: &str, result: &Value, hosts: &AllowedHosts) -> Result<Self, String> {
        let rounds = self.next_round()?;
        let state = result.get("requestState").and_then(Value::as_str).map(str::to_owned);
        if state.as_ref().is_some_and(|state| state.len() > MAX_STATE) {
            return Err("asks for input with a state that is too large".into());
        }
        let requests = result.get("inputRequests").and_then(Value::as_object);
        let mut questions = Vec::new();
        for (name, request) in requests.into_iter().flatten() {
            let question = elicitation::question(server, request, hosts).ok_or(UNASKABLE)?;
            questions.push((name.clone(), question));
        }
        if questions.len() > MAX_QUESTIONS {
            return Err(format!("asks more than {MAX_QUESTIONS} questions at a time"));
        }
        if questions.is_empty() && state.is_none() {
            return Err("asks for input and does not say which".into());
        }
        Ok(Self { id, url: self.url.clone(), rounds, state, questions, ..Self::default() })
    }

    /// Returns the response to a request by which a legacy server asks for input after `earlier` others, if the person has
    /// answered the same question.
    pub fn response(
        &self,
        earlier: usize,
        server: &str,
        request: &Value,
        hosts: &AllowedHosts,
    ) -> Option<Value> {
        let (question, response) = self.answered.get(earlier)?;
        let is_same = elicitation::question(server, request, hosts).as_ref() == Some(question);
        is_same.then(|| response.clone())
    }

    /// Reads a request by which a legacy server asks for input after `earlier` others, during the request with this id.
    ///
    /// # Errors
    /// Why the person cannot be asked, as the end of a sentence about the server.
    pub fn next_of_legacy(
        &self,
        id: u64,
        earlier: usize,
        server: &str,
        request: &Value,
        hosts: &AllowedHosts,
    ) -> Result<Self, String> {
        let rounds = self.next_round()?;
        let question = elicitation::question(server, request, hosts).ok_or(UNASKABLE)?;
        let answered = self.answered.iter().take(earlier).cloned().collect();
        let questions = vec![(String::new(), question)];
        Ok(Self {
            id,
            url: self.url.clone(),
            rounds,
            questions,
            answered,
            is_legacy: true,
            ..Self::default()
        })
    }

    fn next_round(&self) -> Result<u32, String> {
        match self.rounds {
            MAX_ROUNDS => Err(format!("asks for input more than {MAX_ROUNDS} times in a call")),
            rounds => Ok(rounds + 1),
        }
    }

    /// Returns the stored form.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

fn failure(connection: &Connection, error: &McpError) -> ToolOutcome {
    ToolOutcome::failure(format!("the MCP server {:?} {error}", connection.name()))
}
