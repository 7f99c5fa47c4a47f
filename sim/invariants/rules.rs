//! The rules over time, and what they decide about a call. This is the model of `docs/permissions.md` that the core is
//! compared with, so it calls no code of the core.

use super::view::View;
use crate::{
    scenario::CONTROL,
    tools,
    world::{Node, Received, World},
};
use edge_harness::types::{Category, Grants, Policy, Rules, SessionPermissions};
use serde_json::Value;
use std::{collections::BTreeMap, rc::Rc};

/// What the rules decide about a call. A stricter verdict is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Runs,
    /// A person has to approve it.
    Asks,
    /// A person with the scope `approve` has to approve it.
    AsksApprover,
    Denied,
}

/// The rules of a session over time, in the simulator's milliseconds. A request that carries a policy arrives between
/// the times when it was sent and answered, so at some times there are several possibilities.
pub struct Rulebook<'a> {
    policies: &'a [(u64, Rules)],
    deployment: &'a Rules,
    received: Vec<Rc<Received>>,
    /// The permissions of a session, unless it is a subagent's, since these times.
    own: Vec<(u64, SessionPermissions)>,
    /// The grants of a subagent's own approvals, since these times.
    granted: Vec<(u64, Grants)>,
}

impl<'a> Rulebook<'a> {
    pub fn of(world: &'a World, node: &Node, view: &View) -> Self {
        let (mut own, mut granted) = (vec![(0, SessionPermissions::default())], vec![(0, Grants::default())]);
        let tasks: Option<Vec<String>> = node.first_task().map(|first| {
            let tasks = view.turns.iter().skip_while(|turn| turn.id != first);
            tasks.map(|turn| turn.id.clone()).collect()
        });
        for entry in &view.entries {
            let (value, mut permissions) = (&entry.value, own[own.len() - 1].1.clone());
            match entry.kind.as_str() {
                "session.updated" => {
                    let changed = value["changed"]["permissions"].clone();
                    let Ok(changed) = serde_json::from_value(changed) else { continue };
                    permissions = changed;
                }
                "approval.decided" => {
                    let name = value["name"].as_str().unwrap_or_default();
                    let grants = match value["decision"].as_str() {
                        Some("always_allow_tool") => {
                            Grants { tools: [name.to_owned()].into(), ..Grants::default() }
                        }
                        Some("always_allow_category") => {
                            Grants { categories: [tools::category(name)].into(), ..Grants::default() }
                        }
                        _ => continue,
                    };
                    grant(&mut permissions, &grants);
                    let is_own =
                        |tasks: &Vec<String>| entry.turn.as_ref().is_some_and(|turn| tasks.contains(turn));
                    if tasks.as_ref().is_some_and(is_own) {
                        granted.push((entry.at, grants));
                    }
                }
                _ => continue,
            }
            own.push((entry.at, permissions));
        }
        if tasks.is_some() {
            own.clear();
        }
        let deployment = &world.ledger.scenario.people.rules;
        let received = node.received.borrow().clone();
        Self { policies: world.policies(&node.tenant), deployment, received, own, granted }
    }

    /// Returns the rules of a session as they apply to its subagent, in which people have granted tools, too.
    pub fn with_grants_of(mut self, subagent: &Self) -> Self {
        for (at, grants) in &subagent.granted {
            let Some(before) = self.own.iter().rposition(|(since, _)| since <= at) else { continue };
            let permissions = self.own[before].1.clone();
            self.own.insert(before + 1, (*at, permissions));
            self.own[before + 1..].iter_mut().for_each(|(_, permissions)| grant(permissions, grants));
        }
        self
    }

    /// Returns the newest version of the policy that the session has certainly received before `at`; 0 for none.
    pub fn version(&self, at: u64) -> u64 {
        arrived(&self.received, at).map(|received| received.version).max().unwrap_or_default()
    }

    /// Returns the versions of the policy that the session may have had.
    fn versions(&self, from: u64, to: u64) -> Vec<u64> {
        let certain = self.version(from);
        let sent = self.received.iter().filter(|received| received.sent <= to);
        let mut versions: Vec<u64> =
            sent.map(|received| received.version).filter(|version| *version >= certain).collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }

    /// Returns the permissions that the session may have had.
    pub fn permissions(&self, from: u64, to: u64) -> Vec<SessionPermissions> {
        if !self.own.is_empty() {
            let first = self.own.iter().rposition(|(at, _)| *at < from).unwrap_or(0);
            let last = self.own.iter().rposition(|(at, _)| *at <= to).unwrap_or(0);
            return self.own[first..=last].iter().map(|(_, permissions)| permissions.clone()).collect();
        }
        let certain = arrived(&self.received, from).filter_map(|received| received.parents.as_ref());
        let certain = certain.map(|(at, _)| *at).max();
        let sent = self.received.iter().filter(|received| received.sent <= to);
        let sent = sent.filter_map(|received| received.parents.as_ref());
        let mut all = Vec::new();
        for (_, permissions) in sent.filter(|(at, _)| certain.is_none_or(|certain| *at >= certain)) {
            let mut permissions = permissions.clone();
            let (earlier, later): (Vec<_>, Vec<_>) =
                self.granted.iter().filter(|(at, _)| *at <= to).partition(|(at, _)| *at < from);
            for (at, grants) in earlier.into_iter().chain(later) {
                if *at >= from {
                    all.push(permissions.clone());
                }
                grant(&mut permissions, grants);
            }
            all.push(permissions);
        }
        all
    }

    /// Returns whether the session may have had this version and these permissions.
    pub fn may_have(&self, received: &Received, from: u64, to: u64) -> bool {
        let permissions = received.parents.as_ref().map(|(_, permissions)| permissions);
        (self.policies.is_empty() || self.versions(from, to).contains(&received.version))
            && permissions.is_none_or(|own| self.permissions(from, to).contains(own))
    }

    /// Returns the least and the most strict verdict about calls of a tool that the rules may have had between two
    /// times, inclusive.
    pub fn verdicts(&self, tool: &str, from: u64, to: u64) -> (Verdict, Verdict) {
        let none = Rules::default();
        let policies: Vec<&Rules> = match self.policies.is_empty() {
            true => vec![&none],
            false => {
                let version = |version: u64| usize::try_from(version).unwrap_or_default().saturating_sub(1);
                let versions = self.versions(from, to).into_iter();
                versions.filter_map(|own| self.policies.get(version(own))).map(|(_, rules)| rules).collect()
            }
        };
        let (mut least, mut most) = (Verdict::Denied, Verdict::Runs);
        for permissions in self.permissions(from, to) {
            for policy in &policies {
                let verdict = verdict([policy, self.deployment], &permissions, tool);
                (least, most) = (least.min(verdict), most.max(verdict));
            }
        }
        // Without any possibility nothing is known.
        if least > most { (Verdict::Runs, Verdict::Denied) } else { (least, most) }
    }
}

/// Returns what the object had certainly received before `at`.
fn arrived(received: &[Rc<Received>], at: u64) -> impl Iterator<Item = &Received> {
    received.iter().map(Rc::as_ref).filter(move |own| own.arrived.get().is_some_and(|arrived| arrived < at))
}

/// Adds grants. A rule of the session to ask about a granted tool ends.
fn grant(permissions: &mut SessionPermissions, grants: &Grants) {
    permissions.tools.retain(|tool, policy| {
        !(grants.tools.contains(tool) && matches!(policy, Policy::Ask | Policy::AskUser))
    });
    permissions.grants.tools.extend(grants.tools.iter().cloned());
    permissions.grants.categories.extend(&grants.categories);
}

/// The rules of one layer.
type Layer<'a> = (&'a BTreeMap<String, Policy>, &'a BTreeMap<Category, Policy>, Option<Policy>);

fn verdict(operator: [&Rules; 2], session: &SessionPermissions, tool: &str) -> Verdict {
    let category = tools::category(tool);
    let [tenant, deployment] = operator.map(|rules| (&rules.tools, &rules.categories, rules.default));
    let layers: [Layer; 3] = [tenant, deployment, (&session.tools, &session.categories, session.default)];
    let forbids = |layer: &Layer| {
        layer.0.get(tool) == Some(&Policy::Deny) || layer.1.get(&category) == Some(&Policy::Deny)
    };
    if layers.iter().any(forbids) {
        return Verdict::Denied;
    }
    let operators = first_that_applies(&layers[..2], false, tool, category);
    let is_granted = session.grants.tools.contains(tool) || session.grants.categories.contains(&category);
    let all = first_that_applies(&layers, is_granted, tool, category);
    match (operators, all) {
        (Policy::Deny, _) | (_, Policy::Deny) => Verdict::Denied,
        (Policy::Ask, _) => Verdict::AsksApprover,
        (Policy::AskUser, _) => Verdict::Asks,
        (Policy::Allow, Policy::Ask | Policy::AskUser) if !session.yolo => Verdict::Asks,
        (Policy::Allow, _) => Verdict::Runs,
    }
}

fn first_that_applies(layers: &[Layer], is_granted: bool, tool: &str, category: Category) -> Policy {
    let strictest = |policies: &mut dyn Iterator<Item = Policy>| policies.max();
    let allow = |applies: bool| applies.then_some(Policy::Allow);
    let of_tool = strictest(&mut layers.iter().filter_map(|layer| layer.0.get(tool).copied()));
    of_tool
        .or(allow(is_granted))
        // It only controls the session.
        .or(allow(CONTROL.contains(&tool)))
        .or_else(|| strictest(&mut layers.iter().filter_map(|layer| layer.1.get(&category).copied())))
        // The deployment allows by default.
        .or_else(|| strictest(&mut layers.iter().filter_map(|layer| layer.2).chain([Policy::Allow])))
        .unwrap_or(Policy::Allow)
}

/// Returns whether a merge patch has no effect on a value.
pub fn is_applied(patch: &Value, value: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.iter().all(|(name, patch)| is_applied(patch, &value[name])),
        other => other == value,
    }
}
