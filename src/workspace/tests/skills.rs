//! Skills in a glance, and the files of a skill.

use super::{Stage, bytes, path, paths, prefix, put};
use crate::ports::{Clock, FileError, filesystem::Precondition};
use crate::types::Owner;
use crate::workspace::{
    Bundle, Layer,
    glance::{GlanceOptions, WorkspaceGlance},
    skills::{HEAD_CHARS, MAX_SKILLS, Skill, SkillState, resolve},
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use std::{rc::Rc, time::Duration};

fn skill(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n\nText.\n")
}

fn own(stage: &Stage, at: &str, text: &str) {
    put(&**stage.of("ann").layer(Layer::User), at, text);
}

fn glance(stage: &Stage) -> WorkspaceGlance {
    let wanted = ["AGENTS.md", "skills/wanted/SKILL.md"].map(path).to_vec();
    let (fresh, timeout) = (Duration::ZERO, Duration::from_secs(2));
    stage.all.glance(GlanceOptions {
        wanted,
        max_chars: 100,
        folder: prefix("knowledge/"),
        limit: 3,
        skills: true,
        fresh,
        timeout,
    })
}

/// Returns the name, the layer and the description of each skill that Ann's sessions see.
fn seen(glance: &WorkspaceGlance) -> Vec<(String, Layer, Result<String, String>)> {
    let owner = Owner { tenant: "t".into(), agent: "a".into(), user: "ann".into() }.into();
    let view = block_on(glance.read(&owner)).expect("a view");
    let described = |skill: &Skill| {
        let description = skill.description.clone().map(|text| text.to_string());
        description.map_err(|error| error.to_string())
    };
    let all = resolve(&view, |_| true).into_iter();
    all.map(|skill| (skill.name.clone(), skill.layer, described(skill))).collect()
}

fn valid(name: &str, layer: Layer, description: &str) -> (String, Layer, Result<String, String>) {
    (name.to_owned(), layer, Ok(description.to_owned()))
}

#[test]
fn a_later_layer_replaces_skills_of_the_same_name() {
    let template: &[(&str, &'static [u8])] = &[
        ("skills/a/SKILL.md", b"---\nname: a\ndescription: template a\n---\n"),
        ("skills/b/SKILL.md", b"---\nname: b\ndescription: template b\n---\n"),
        ("skills/c/SKILL.md", b"---\nname: c\ndescription: template c\n---\n"),
    ];
    let stage = Stage::with(Bundle::new(template).expect("paths"));
    stage.share("skills/b/SKILL.md", &skill("b", "shared b"));
    stage.share("skills/c/SKILL.md", &skill("c", "shared c"));
    stage.share("skills/a/SKILL.md", "");
    own(&stage, "skills/c/SKILL.md", &skill("c", "ann's c"));
    own(&stage, "skills/b/SKILL.md", "");
    own(&stage, "skills/a/SKILL.md", &skill("other", "malformed"));
    own(&stage, "skills/_drafts/d/SKILL.md", &skill("d", "a draft"));
    own(&stage, "skills/wanted/SKILL.md", &skill("wanted", "a context file, too"));
    put(&**stage.of("bob").layer(Layer::User), "skills/bob/SKILL.md", &skill("bob", "bob's"));
    let error = "the name \"other\" is not that of the folder, \"a\"";
    assert_eq!(
        seen(&glance(&stage)),
        [
            valid("a", Layer::Shared, "template a"),
            valid("b", Layer::Shared, "shared b"),
            valid("c", Layer::User, "ann's c"),
            valid("wanted", Layer::User, "a context file, too"),
            ("a".to_owned(), Layer::User, Err(error.to_owned())),
        ]
    );
}

#[test]
fn learned_skills_have_a_usage_which_is_no_context_file() {
    let text = "---\nname: a\ndescription: d\nmetadata: {learned: \"true\"}\n---\n";
    let usage = r#"{"a": {"uses": 3, "learned_at": "2020-01-01T00:00:00.000Z"}}"#;
    let template: &[(&str, &'static [u8])] =
        &[("skills/a/SKILL.md", text.as_bytes()), ("skills/_usage.json", usage.as_bytes())];
    let stage = Stage::with(Bundle::new(template).expect("paths"));
    let now = stage.clock.now();
    let read = |user: &str| {
        let owner = Owner { tenant: "t".into(), agent: "a".into(), user: user.into() }.into();
        let view = block_on(glance(&stage).read(&owner)).expect("a view");
        assert!(view.user.files.is_empty() && view.shared.files.is_empty());
        let skill = *resolve(&view, |_| true).first().expect("a skill");
        (view.usage_of(skill).map(|usage| usage.uses), view.state_of(skill, now))
    };
    assert_eq!(read("ann"), (None, SkillState::Active), "a skill of the template");
    stage.share("skills/_usage.json", usage);
    assert_eq!(read("ann"), (None, SkillState::Active));
    stage.share("skills/a/SKILL.md", text);
    assert_eq!(read("ann"), (Some(3), SkillState::Archived));
    own(&stage, "skills/a/SKILL.md", text);
    assert_eq!(read("ann"), (None, SkillState::Active), "the usage of her own is not known");
    own(&stage, "skills/_usage.json", "broken");
    assert_eq!(read("ann"), (None, SkillState::Active));
    assert_eq!(read("bob"), (Some(3), SkillState::Archived));
}

#[test]
fn only_changed_starts_are_sent() {
    let stage = Stage::new();
    let glance = glance(&stage);
    let long = format!("{}{}", skill("long", "d"), "x".repeat(HEAD_CHARS));
    stage.share("skills/long/SKILL.md", &long);
    own(&stage, "skills/a/SKILL.md", &skill("a", "d"));
    let cost = || {
        let (calls, sent) = (stage.table.calls.get(), stage.table.glanced.get());
        let seen = seen(&glance);
        (stage.table.calls.get() - calls, stage.table.glanced.get() - sent, seen.len())
    };
    let short = skill("a", "d").len();
    assert_eq!(cost(), (1, HEAD_CHARS + short, 2));
    assert_eq!(cost(), (1, 0, 2));
    // A file with the content of a skill is sent, because only the start of the skill is known.
    own(&stage, "AGENTS.md", &long);
    assert_eq!(cost(), (1, long.len(), 2));
    own(&stage, "skills/b/SKILL.md", &skill("a", "d"));
    assert_eq!(cost(), (1, 0, 3), "the content is known");
    own(&stage, "skills/a/SKILL.md", &skill("a", "e"));
    assert_eq!(cost(), (1, short, 3));
}

#[test]
fn the_number_of_skills_is_limited() {
    let stage = Stage::new();
    let glance = glance(&stage);
    for n in 0..MAX_SKILLS {
        stage.share(&format!("skills/s{n:02}/SKILL.md"), &skill(&format!("s{n:02}"), "d"));
    }
    let owner = Owner { tenant: "t".into(), agent: "a".into(), user: "ann".into() }.into();
    let shared = || block_on(glance.read(&owner)).expect("a view").shared;
    assert_eq!((shared().skills.len(), shared().has_more_skills), (MAX_SKILLS, false));
    stage.share("skills/t/SKILL.md", &skill("t", "d"));
    let seen = shared();
    assert_eq!((seen.skills.len(), seen.has_more_skills), (MAX_SKILLS, true));
    assert!(seen.skills.iter().all(|skill| skill.name != "t"));
}

#[test]
fn what_is_no_skill_does_not_count() {
    let stage = Stage::new();
    for n in 0..100 {
        stage.share(&format!("skills/{n:03}.md"), "A loose file.");
        stage.share(&format!("skills/f{n:03}/notes.md"), "A folder without a SKILL.md.");
    }
    for n in 0..20 {
        stage.share(&format!("skills/e{n:03}/SKILL.md"), "");
    }
    stage.share("skills/z/SKILL.md", &skill("z", "d"));
    assert_eq!(seen(&glance(&stage)), [valid("z", Layer::Shared, "d")]);
}

#[test]
fn a_skill_is_loaded_with_the_files_of_its_layer() {
    let stage = Stage::new();
    stage.share("skills/a/SKILL.md", &skill("a", "shared"));
    stage.share("skills/a/shared.md", "x");
    own(&stage, "skills/a/own.md", "x");
    let load = || block_on(stage.of("ann").skill("a")).map(|(skill, _)| skill);
    let files = |skill: &Skill| block_on(stage.of("ann").skill_files(skill, 9)).expect("a list");
    let shared = load().expect("a skill");
    assert_eq!((shared.layer, files(&shared)), (Layer::Shared, vec!["shared.md".to_owned()]));
    own(&stage, "skills/a/SKILL.md", &skill("a", "own"));
    let own_skill = load().expect("a skill");
    assert_eq!((own_skill.layer, files(&own_skill)), (Layer::User, vec!["own.md".to_owned()]));
    for name in ["none", "", "..", "A", "_drafts"] {
        assert_eq!(block_on(stage.of("ann").skill(name)).map(drop), Err(FileError::NotFound), "{name}");
    }
}

#[test]
fn a_draft_that_changes_during_its_promotion_is_not_promoted() {
    let stage = Stage::new();
    own(&stage, "skills/_drafts/a/SKILL.md", &skill("a", "d"));
    own(&stage, "skills/_drafts/a/run.sh", "one");
    let ann = stage.of("ann");
    let draft = block_on(ann.draft("a")).expect("a draft");
    own(&stage, "skills/_drafts/a/run.sh", "two");
    let clock: Rc<dyn Clock> = Rc::new(stage.clock.clone());
    let promoted = block_on(ann.review(draft, Layer::User, &clock)).map(drop).expect_err("another version");
    assert_eq!(promoted.to_string(), FileError::Conflict.to_string());
    let target = path("skills/a/SKILL.md");
    let write = ann.write(&target, bytes("x"), &Precondition::CreateOnly);
    assert!(block_on(write).is_ok(), "nothing was written");
}

/// Promotes Ann's draft `a` to a skill of her own.
fn promote(stage: &Stage) -> Result<Skill, String> {
    let (ann, clock): (_, Rc<dyn Clock>) = (stage.of("ann"), Rc::new(stage.clock.clone()));
    let draft = block_on(ann.draft("a")).map_err(|error| error.to_string())?;
    let promotion = block_on(ann.review(draft, Layer::User, &clock)).map_err(|error| error.to_string())?;
    block_on(ann.promote(promotion, clock.now())).map_err(|error| error.to_string())
}

#[test]
fn a_promotion_that_is_interrupted_anywhere_can_be_repeated() {
    for calls in 0.. {
        let stage = Stage::new();
        for (at, text) in [("SKILL.md", &*skill("a", "d")), ("run.sh", "one"), ("Z.md", "two")] {
            own(&stage, &format!("skills/_drafts/a/{at}"), text);
        }
        stage.table.calls_left.set(Some(calls));
        let first = promote(&stage);
        stage.table.calls_left.set(None);
        if first.is_err() {
            assert_eq!(promote(&stage).map(|skill| skill.name), Ok("a".to_owned()), "after {calls} calls");
        }
        let own = paths(&**stage.of("ann").layer(Layer::User), "skills/");
        assert_eq!(own, ["skills/a/SKILL.md", "skills/a/Z.md", "skills/a/run.sh"], "after {calls} calls");
        if first.is_ok() {
            assert!(calls > 6, "each of the steps has failed once");
            return;
        }
    }
}

#[test]
fn a_draft_that_is_too_large_is_not_read() {
    for (files, why) in [
        (vec![("large.md", (1 << 20) + 1)], "large.md: it has 1048577 bytes; at most 1048576 are allowed"),
        (
            ["a.md", "b.md", "c.md", "d.md"].map(|name| (name, 1 << 20)).to_vec(),
            "the draft: its files have 4194342 bytes; at most 4194304 are allowed",
        ),
    ] {
        let stage = Stage::new();
        own(&stage, "skills/_drafts/a/SKILL.md", &skill("a", "d"));
        for (name, size) in files {
            own(&stage, &format!("skills/_drafts/a/{name}"), &"x".repeat(size));
        }
        assert_eq!(promote(&stage).map(drop), Err(why.to_owned()));
    }
    let stage = Stage::new();
    own(&stage, "skills/_drafts/a/SKILL.md", &skill("a", "d"));
    for n in 0..20 {
        own(&stage, &format!("skills/_drafts/a/z{n}"), "x");
    }
    let listed = block_on(stage.of("ann").drafts()).expect("a list").remove(0);
    assert_eq!(listed.version, block_on(stage.of("ann").draft("a")).expect("a draft").version);
    let many = "the draft: it has more than 8 files besides SKILL.md";
    assert_eq!(promote(&stage).map(drop), Err(many.to_owned()));
    // The list of drafts does not read a large SKILL.md.
    let stage = Stage::new();
    own(&stage, "skills/_drafts/a/SKILL.md", &format!("{}{}", skill("a", "d"), "x".repeat(1 << 20)));
    own(&stage, "skills/_drafts/b/SKILL.md", &skill("b", "d"));
    let drafts = block_on(stage.of("ann").drafts()).expect("a list");
    let described: Vec<_> =
        drafts.iter().map(|draft| (draft.name.as_str(), draft.description.is_ok())).collect();
    assert_eq!(described, [("a", false), ("b", true)]);
    assert!(promote(&stage).is_err());
}

#[test]
fn a_list_of_drafts_has_whole_drafts_only() {
    let stage = Stage::new();
    for n in 0..70 {
        for file in ["SKILL.md", "a", "b", "c", "d", "e", "f", "g", "h"] {
            own(&stage, &format!("skills/_drafts/d{n:02}/{file}"), &skill(&format!("d{n:02}"), "d"));
        }
    }
    let ann = stage.of("ann");
    let drafts = block_on(ann.drafts()).expect("a list");
    assert_eq!((drafts.len(), drafts.last().map(|draft| draft.name.as_str())), (64, Some("d63")));
    for draft in drafts {
        assert_eq!(block_on(ann.draft(&draft.name)).expect("a draft").version, draft.version);
    }
    let room = |name: &str| block_on(ann.has_room_for_draft(name)).expect("an answer");
    assert_eq!((room("d05"), room("new")), (true, false));
}
