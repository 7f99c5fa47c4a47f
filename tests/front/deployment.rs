//! The agents of a deployment with the default settings.

use crate::stage::Web;
use async_trait::async_trait;
use edge_harness::mcp::{self, Listings, McpServers};
use edge_harness::memory::Memories;
use edge_harness::model::{ModelRegistry, ModelSettings};
use edge_harness::platform::in_memory::{
    InMemoryAgents, InMemoryDirectory, ManualClock, MemoryLog, SeededEntropy,
};
use edge_harness::ports::{AllowedHosts, Secrets, directory::DirectoryError};
use edge_harness::standard::{
    Config, Standard, add_servers,
    agents::{AgentParts, Agents, BuiltAgent},
    builder,
    definition::{AgentConfig, Definition},
};
use edge_harness::types::{ErrorCode, Problem, TenantId};
use edge_harness::workspace::Workspaces;
use std::rc::Rc;

struct NoSecrets;

#[async_trait(?Send)]
impl Secrets for NoSecrets {
    async fn get(&self, _: &TenantId, _: &str) -> Result<Option<String>, DirectoryError> {
        Ok(None)
    }
}

/// The agents `default` and `other` of a deployment with the default settings.
pub fn agents(
    store: &Rc<InMemoryAgents>,
    clock: &ManualClock,
    files: &Rc<Workspaces>,
    memories: &Rc<Memories>,
    directory: &Rc<InMemoryDirectory>,
) -> Agents {
    let (time, files, memories) = (Rc::new(clock.clone()), Rc::clone(files), Rc::clone(memories));
    let directory = directory.clone();
    let build = move |definition: Option<Definition>, listings: &Listings| {
        let config = Config::default();
        let own = match definition {
            Some(definition) => AgentConfig::of(&config, definition).expect("checked tools"),
            None => AgentConfig::of_deployment(&config),
        };
        let files = Rc::new(files.with_files(&own.files));
        let web = Rc::new(Web::default());
        let settings = ModelSettings::default();
        let standard = Standard {
            models: Rc::new(ModelRegistry::new(settings, web.clone(), None, time.clone())),
            clock: time.clone(),
            entropy: Rc::new(SeededEntropy::default()),
            http: web,
            log: Rc::new(MemoryLog::default()),
            files: files.clone(),
            memories: memories.clone(),
            directory: directory.clone(),
            web_fetch_allow: String::new(),
            instructions: own.instructions,
            settings: own.settings,
            context: own.context,
        };
        let builder = own
            .external_tools
            .into_iter()
            .fold(builder(standard).only_tools(own.tools), |agent, tool| agent.dyn_tool(Rc::new(tool)));
        let agent = add_servers(builder, &own.mcp_servers, listings).build();
        let agent = agent.map_err(|error| Problem::new(ErrorCode::NotConfigured, error.to_string()))?;
        Ok(BuiltAgent { agent: Rc::new(agent), files })
    };
    let build = Rc::new(build);
    Agents::new(AgentParts {
        store: store.clone(),
        clock: Rc::new(clock.clone()),
        of_deployment: vec!["other".into()],
        mcp: McpServers::new(
            mcp::Ports {
                http: Rc::new(Web::default()),
                secrets: Rc::new(NoSecrets),
                clock: Rc::new(clock.clone()),
                hosts: AllowedHosts::parse("*"),
            },
            Rc::new(MemoryLog::default()),
        ),
        settings: Box::new(|| Definition::of_deployment(&Config::default())),
        build: {
            let build = build.clone();
            Box::new(move |definition, listings: &Listings| build(definition, listings))
        },
        unusable: Box::new(move |_why| build(None, &Listings::default())),
    })
}
