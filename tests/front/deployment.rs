//! The agents of a deployment with the default settings.

use crate::stage::Web;
use edge_harness::http::TenantSecrets;
use edge_harness::mcp::{self, Listings, McpServers};
use edge_harness::memory::Memories;
use edge_harness::model::{ModelRegistry, ModelSettings};
use edge_harness::platform::in_memory::{
    InMemoryAgents, InMemoryConsents, InMemoryDirectory, ManualClock, MemoryLog, PlainSealer, SeededEntropy,
};
use edge_harness::ports::AllowedHosts;
use edge_harness::standard::{
    Config, Standard, add_servers,
    agents::{AgentParts, Agents, BuiltAgent},
    builder,
    definition::{AgentConfig, Definition},
    unusable,
};
use edge_harness::tools::http_tool::{HttpTool, HttpToolPorts};
use edge_harness::types::{ErrorCode, Problem};
use edge_harness::workspace::Workspaces;
use std::rc::Rc;

/// The agents `default` and `other` of a deployment with the default settings.
pub fn agents(
    store: &Rc<InMemoryAgents>,
    clock: &ManualClock,
    files: &Rc<Workspaces>,
    memories: &Rc<Memories>,
    directory: &Rc<InMemoryDirectory>,
    secrets: &Rc<TenantSecrets>,
    consents: Rc<InMemoryConsents>,
) -> Agents {
    let (time, files, memories) = (Rc::new(clock.clone()), Rc::clone(files), Rc::clone(memories));
    let (own_files, of_unusable) = (files.clone(), time.clone());
    let (directory, secrets, of_servers) = (directory.clone(), secrets.clone(), secrets.clone());
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
        let ports = HttpToolPorts {
            http: Rc::new(Web::default()),
            secrets: secrets.clone(),
            allow: config.http_tools_allow.clone(),
        };
        let http_tools = own.http_tools.into_iter().map(|tool| Rc::new(HttpTool::new(tool, ports.clone())));
        let builder = own
            .external_tools
            .into_iter()
            .fold(builder(standard).only_tools(own.tools), |agent, tool| agent.dyn_tool(Rc::new(tool)));
        let builder = http_tools.fold(builder, |agent, tool| agent.dyn_tool(tool));
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
                secrets: of_servers,
                clock: Rc::new(clock.clone()),
                hosts: AllowedHosts::parse("*"),
                consents,
                sealer: Rc::new(PlainSealer),
                spawn: Box::new(drop),
                entropy: Rc::<SeededEntropy>::default(),
                public_url: None,
            },
            Rc::new(MemoryLog::default()),
        ),
        http_tools_allow: Config::default().http_tools_allow,
        remote_agents_allow: Config::default().remote_agents_allow,
        settings: Box::new(|| Definition::of_deployment(&Config::default())),
        build: {
            let build = build.clone();
            Box::new(move |definition, listings: &Listings| build(definition, listings))
        },
        unusable: Box::new(move |why| {
            let models = Rc::new(ModelRegistry::new(
                ModelSettings::default(),
                Rc::new(Web::default()),
                None,
                of_unusable.clone(),
            ));
            let entropy = Rc::new(SeededEntropy::default());
            let agent = unusable(models, (of_unusable.clone(), entropy), Rc::new(MemoryLog::default()), why);
            let agent = agent.map_err(|error| Problem::new(ErrorCode::NotConfigured, error.to_string()))?;
            Ok(BuiltAgent { agent: Rc::new(agent), files: own_files.clone() })
        }),
    })
}
