//! `agentctl acp`: an agent for editors that speak the Agent Client Protocol.

mod prompt;
mod updates;

use crate::{
    api::{Api, segment},
    context::Context,
    error::{Error, Result},
    stream::{Follow, Step},
    turn::{MAX_FAILURES, abort},
    wire::Session,
};
use agent_client_protocol::{
    self as acp, Agent, Client, Stdio,
    schema::ProtocolVersion,
    v1::{ConnectionTo, schema as wire},
};
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Example of an entry in the settings of an editor:
  {\"agent_servers\": {\"edge-harness\": {\"command\": \"agentctl\", \"args\": [\"acp\", \"--agent\", \"coder\"]}}}";

/// Lets an editor that speaks the Agent Client Protocol use an agent
///
/// The editor starts this command and speaks the protocol over its standard input and output. A session of the editor is a
/// session of the server, and approvals appear in the editor. The agent works in its workspace on the server, not on the
/// files of the editor.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Acp {
    /// Agent of new sessions
    #[arg(long, default_value = "default")]
    agent: String,
}

impl Acp {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        serve(Server { api: context.api()?, agent: self.agent }).await.map_err(|e| Error::Response(e.message))
    }
}

/// The agent that the editor sees.
#[derive(Clone)]
struct Server {
    api: Api,
    agent: String,
}

/// Answers the editor until it closes the connection.
async fn serve(server: Server) -> acp::Result<()> {
    let [creator, loader, prompter, switcher, canceler] = std::array::from_fn(|_| server.clone());
    Agent
        .v1()
        .name("agentctl")
        .on_receive_request(
            async move |_: wire::InitializeRequest, responder, _| responder.respond(capabilities()),
            acp::on_receive_request!(),
        )
        .on_receive_request(
            async move |_: wire::NewSessionRequest, responder, _| {
                responder.respond_with_result(creator.create().await.map_err(failed))
            },
            acp::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: wire::LoadSessionRequest, responder, editor| {
                responder
                    .respond_with_result(loader.load(&request.session_id.0, &editor).await.map_err(failed))
            },
            acp::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: wire::PromptRequest, responder, editor: ConnectionTo<Client>| {
                let (api, to) = (prompter.api.clone(), editor.clone());
                // Other messages, such as a cancellation, arrive while the turn runs.
                editor.spawn(async move {
                    responder.respond_with_result(prompt::run(&api, &request, &to).await.map_err(failed))
                })
            },
            acp::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: wire::SetSessionModeRequest, responder, _| {
                let changed = switcher.switch(&request.session_id.0, &request.mode_id.0).await;
                responder.respond_with_result(changed.map_err(failed))
            },
            acp::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notice: wire::CancelNotification, _| {
                // The prompt that is canceled gets its response when the turn has ended.
                let _ = abort(&canceler.api, &notice.session_id.0).await;
                Ok(())
            },
            acp::on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

fn capabilities() -> wire::InitializeResponse {
    let prompts = wire::PromptCapabilities::new().embedded_context(true);
    wire::InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(wire::AgentCapabilities::new().load_session(true).prompt_capabilities(prompts))
        .agent_info(wire::Implementation::new("agentctl", env!("CARGO_PKG_VERSION")))
}

impl Server {
    async fn create(&self) -> Result<wire::NewSessionResponse> {
        let body = json!({ "agent": self.agent });
        let session: Session = self.api.post("/v1/sessions").body_json(&body).json().await?;
        let modes = self.modes(&session).await;
        Ok(wire::NewSessionResponse::new(session.id.clone()).modes(modes))
    }

    /// Sends the whole conversation to the editor.
    async fn load(&self, session: &str, editor: &ConnectionTo<Client>) -> Result<wire::LoadSessionResponse> {
        let state: Session = self.api.get(&format!("/v1/sessions/{}", segment(session))).json().await?;
        let mut events = Follow::new(&self.api, session, "0");
        let mut updates = updates::Updates::replay();
        let (mut last, mut failures) = (0, 0);
        while last < state.last_seq {
            match events.next().await? {
                Step::Event(event) => {
                    (last, failures) = (event.json["seq"].as_u64().unwrap_or(last), 0);
                    for update in updates.of(&event) {
                        notify(editor, session, update)?;
                    }
                }
                Step::Lost(error) if failures >= MAX_FAILURES => return Err(error),
                Step::Lost(_) => failures += 1,
                Step::Connected | Step::Idle => {}
            }
        }
        Ok(wire::LoadSessionResponse::new().modes(self.modes(&state).await))
    }

    async fn switch(&self, session: &str, mode: &str) -> Result<wire::SetSessionModeResponse> {
        let request = self.api.patch(&format!("/v1/sessions/{}", segment(session)));
        request.body_json(&json!({ "mode": mode })).send().await?;
        Ok(wire::SetSessionModeResponse::new())
    }

    /// Returns the modes of a session, if its agent names them.
    async fn modes(&self, session: &Session) -> Option<wire::SessionModeState> {
        let current = session.mode.clone()?;
        let path = format!("/v1/agents/{}", segment(&session.agent));
        let definition: Value = self.api.get(&path).json().await.ok()?;
        let modes = definition["modes"].as_array()?.iter().filter_map(|mode| {
            let id = mode["id"].as_str()?;
            let name = mode["name"].as_str().unwrap_or(id);
            Some(
                wire::SessionMode::new(id.to_owned(), name.to_owned())
                    .description(mode["description"].as_str().map(str::to_owned)),
            )
        });
        Some(wire::SessionModeState::new(current, modes.collect::<Vec<_>>()))
    }
}

/// Sends an update of a session.
fn notify(editor: &ConnectionTo<Client>, session: &str, update: wire::SessionUpdate) -> Result<()> {
    let notification = wire::SessionNotification::new(session.to_owned(), update);
    editor.send_notification(notification).map_err(|e| Error::Response(e.message))
}

fn failed(error: Error) -> acp::Error {
    let is_refused = matches!(&error, Error::Refused(problem) if (400..500).contains(&problem.status));
    let kind = if is_refused { acp::Error::invalid_params() } else { acp::Error::internal_error() };
    kind.data(Value::from(error.to_string()))
}
