//! The `skill_usage` follow-up: counts the turns that have loaded learned skills.

use crate::agent::{
    FollowUp, RuntimeContext,
    follow_up::{FollowUpContext, Progress},
    settings::SkillSettings,
};
use crate::ports::{FileError, filesystem::FileResult};
use crate::types::{BoxError, EventKind, Record, Timestamp, TurnId};
use crate::workspace::{
    FileScope, Layer, Workspaces,
    glance::View,
    skills::{SkillUsage, SkillUse, resolve, usage::retry},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Maximum number of records that are read at once.
const MAX_RECORDS: usize = 200;

/// The times of the turns that have loaded each skill.
type Loads = BTreeMap<String, Vec<Timestamp>>;

/// Priority 7. Also runs after a failed turn and in subagents, because they use skills, too.
pub struct SkillUsageCount {
    workspaces: Rc<Workspaces>,
    settings: SkillSettings,
    /// The tool that loads skills.
    loader: &'static str,
}

impl SkillUsageCount {
    /// Creates the follow-up, with the name of the tool that loads skills.
    pub fn new(workspaces: Rc<Workspaces>, settings: SkillSettings, loader: &'static str) -> Self {
        Self { workspaces, settings, loader }
    }

    /// Returns the turns that have loaded each skill.
    fn loads(&self, records: &[Record]) -> Loads {
        let mut turns: BTreeSet<(&str, Option<&TurnId>)> = BTreeSet::new();
        let mut loads = Loads::new();
        for record in records {
            let EventKind::ToolStarted { name, args, .. } = &record.kind else { continue };
            let Some(skill) = args["name"].as_str().filter(|_| name == self.loader) else { continue };
            if turns.insert((skill, record.turn.as_ref())) {
                loads.entry(skill.to_owned()).or_default().push(record.at);
            }
        }
        loads
    }

    /// Counts the turns in one layer.
    async fn count(&self, cx: &FollowUpContext, layer: Layer, loads: &Loads) -> FileResult<()> {
        let (view, now) = (self.workspaces.skills(&cx.workspace).await?, cx.clock.now());
        let mut usage = known(&view, layer, now);
        let mut is_used = false;
        for skill in resolve(&view, |name| self.settings.admits(name)) {
            let times = loads.get(&skill.name).filter(|_| skill.layer == layer);
            if let (Some(times), Some(usage)) = (times, usage.skills.get_mut(&skill.name)) {
                times.iter().for_each(|at| usage.count(*at));
                is_used = true;
            }
        }
        if !is_used {
            return Ok(());
        }
        let scope = match layer {
            Layer::User => FileScope::of_workspace(&cx.workspace),
            Layer::Shared => FileScope::Agent { agent: cx.owner.agent.clone() },
        };
        // The session may have been erased since the follow-up began.
        cx.ensure_active().map_err(|_| FileError::Closed)?;
        usage.write(&self.workspaces.tree(&cx.owner.tenant, &scope)).await
    }

    /// Counts the turns in both layers. After an eviction between the write and the commit of the progress, they count
    /// twice. The state of a skill depends only on its last use, so this changes nothing but the number.
    async fn count_all(&self, cx: &FollowUpContext, loads: &Loads) -> FileResult<()> {
        for layer in [Layer::User, Layer::Shared] {
            retry(async || self.count(cx, layer, loads).await).await?;
        }
        Ok(())
    }
}

/// Returns the usage of the learned skills of a layer. Those without a known usage start now; skills that do not exist any
/// more are forgotten.
fn known(view: &View, layer: Layer, now: Timestamp) -> SkillUsage {
    let mut usage = view.layer(layer).usage.clone();
    let learned = view.layer(layer).skills.iter().filter(|skill| skill.is_learned);
    let learned: BTreeSet<&str> = learned.map(|skill| &*skill.name).collect();
    usage.skills.retain(|name, _| learned.contains(&**name));
    for name in learned {
        usage.skills.entry(name.to_owned()).or_insert_with(|| SkillUse::starting(now));
    }
    usage
}

#[async_trait::async_trait(?Send)]
impl FollowUp for SkillUsageCount {
    fn name(&self) -> &'static str {
        "skill_usage"
    }

    fn priority(&self) -> i32 {
        7
    }

    fn is_due(&self, cx: &RuntimeContext) -> bool {
        cx.state.has_called(self.loader)
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        let mut seen = cx.seen;
        loop {
            let (records, has_more) = cx.oldest(seen, &["tool.started"], MAX_RECORDS)?;
            let Some(last) = records.last() else { return Ok(Progress::Done(Vec::new())) };
            seen = last.seq;
            let loads = self.loads(&records);
            let counted = if loads.is_empty() { Ok(()) } else { self.count_all(cx, &loads).await };
            match counted {
                Ok(()) if has_more => {}
                Ok(()) => return Ok(Progress::Done(Vec::new())),
                Err(FileError::Quota(quota)) => return cx.skipped(self.name(), quota),
                // The number of files is a limit, too.
                Err(FileError::Full) => return Ok(Progress::Done(Vec::new())),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
