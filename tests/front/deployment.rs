//! The agents of a deployment with the default settings.

use crate::stage::Web;
use edge_harness::memory::Memories;
use edge_harness::model::{ModelRegistry, ModelSettings};
use edge_harness::platform::in_memory::{
    InMemoryAgents, InMemoryDirectory, ManualClock, MemoryLog, SeededEntropy,
};
use edge_harness::standard::{
    Config, Standard,
    agents::{AgentParts, Agents, BuiltAgent},
    builder,
    definition::{AgentConfig, Definition},
};
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
) -> Agents {
    let (time, files, memories) = (Rc::new(clock.clone()), Rc::clone(files), Rc::clone(memories));
    let directory = directory.clone();
    let build = move |definition: Option<Definition>| {
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
        let agent = builder.build();
        let agent = agent.map_err(|error| Problem::new(ErrorCode::NotConfigured, error.to_string()))?;
        Ok(BuiltAgent { agent: Rc::new(agent), files })
    };
    let build = Rc::new(build);
    Agents::new(AgentParts {
        store: store.clone(),
        clock: Rc::new(clock.clone()),
        of_deployment: vec!["other".into()],
        settings: Box::new(|| Definition::of_deployment(&Config::default())),
        build: {
            let build = build.clone();
            Box::new(move |definition| build(definition))
        },
        unusable: Box::new(move |_why| build(None)),
    })
}
