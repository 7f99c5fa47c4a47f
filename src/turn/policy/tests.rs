//! The whole table of decisions against what the chain says, what people try to get around it, and that no
//! way leads around a denial.

use super::*;
use crate::types::{Effect, Grants};
use proptest::prelude::*;
use serde_json::json;

const POLICIES: [Option<Policy>; 4] = [None, Some(Policy::Allow), Some(Policy::Ask), Some(Policy::Deny)];
const EFFECTS: [Effect; 5] =
    [Effect::ReadOnly, Effect::NetworkRead, Effect::LocalWrite, Effect::Network, Effect::Destructive];

fn tool(name: &str, category: Category) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        effect: Effect::Destructive,
        idempotent: false,
        retry_on_timeout: false,
        varies: false,
        category,
        control: false,
        suspends: None,
    }
}

fn pattern(pattern: &str, policy: Policy) -> PatternRule {
    PatternRule { tool: None, pattern: pattern.into(), policy }
}

/// Rules with one of each kind.
fn rules(
    per_tool: Option<Policy>,
    patterns: Option<Policy>,
    category: Option<Policy>,
    default: Option<Policy>,
) -> Rules {
    Rules {
        default,
        categories: category.map(|policy| (Category::Edit, policy)).into_iter().collect(),
        tools: per_tool.map(|policy| ("write".to_owned(), policy)).into_iter().collect(),
        patterns: patterns.map(|policy| pattern("src/**", policy)).into_iter().collect(),
    }
}

/// The session's permissions with these rules.
fn session(rules: Rules) -> SessionPermissions {
    let Rules { default, categories, tools, patterns } = rules;
    SessionPermissions { default, categories, tools, patterns, yolo: false, grants: Grants::default() }
}

fn kind(verdict: &Verdict) -> Policy {
    match verdict {
        Verdict::Allow => Policy::Allow,
        Verdict::Ask => Policy::Ask,
        Verdict::Deny(reason) => {
            assert!(reason.len() > 20 && !reason.contains("src/**"), "{reason}");
            Policy::Deny
        }
    }
}

/// A decision for a call that patterns fit, over one set of rules.
struct Row {
    per_tool: Option<Policy>,
    tool_grant: bool,
    category_grant: bool,
    pattern: Option<Policy>,
    category: Option<Policy>,
    default: Option<Policy>,
    yolo: bool,
    read_only: bool,
    reads: bool,
    control: bool,
}

impl Row {
    /// The sentence of the specification: the first line that applies.
    fn expected(&self) -> Policy {
        use Policy::{Allow, Ask, Deny};
        let ask = if self.yolo { Allow } else { Ask };
        let is = |said: Option<Policy>, policy| said == Some(policy);
        let table = [
            (is(self.per_tool, Deny), Deny),
            (is(self.category, Deny), Deny),
            (is(self.pattern, Deny), Deny),
            (self.read_only && !self.reads && !self.control, Deny),
            (is(self.per_tool, Ask), ask),
            (is(self.per_tool, Allow), Allow),
            (self.tool_grant, Allow),
            (self.category_grant, Allow),
            (is(self.pattern, Ask) && !self.control, ask),
            (is(self.pattern, Allow), Allow),
            (self.control, Allow),
            (is(self.category, Ask), ask),
            (is(self.category, Allow), Allow),
            (is(self.default, Deny), Deny),
            (is(self.default, Ask), ask),
            (is(self.default, Allow), Allow),
            (true, ask),
        ];
        table.into_iter().find(|(applies, _)| *applies).unwrap().1
    }

    /// Whether no call at all could run.
    fn hidden(&self) -> bool {
        let deny = Some(Policy::Deny);
        let may = self.per_tool.is_some()
            || self.tool_grant
            || self.category_grant
            || matches!(self.pattern, Some(Policy::Allow | Policy::Ask))
            || self.category.is_some()
            || self.control;
        self.per_tool == deny
            || self.category == deny
            || (self.read_only && !self.reads && !self.control)
            || (self.default == deny && !may)
    }
}

#[test]
fn every_decision_is_the_one_of_the_table() {
    let args = json!({"path": "src/main.rs"});
    let mut rows = 0;
    for (per_tool, pattern) in POLICIES.into_iter().flat_map(|a| POLICIES.map(|b| (a, b))) {
        for (category, default) in POLICIES.into_iter().flat_map(|a| POLICIES.map(|b| (a, b))) {
            let said = rules(per_tool, pattern, category, default);
            let none = Rules::default();
            for bits in 0..32_u8 {
                let flag = |bit: u8| bits & (1 << bit) != 0;
                let (tool_grant, category_grant, yolo, read_only) = (flag(0), flag(1), flag(2), flag(3));
                let mut grants = Grants::default();
                if tool_grant {
                    grants.tools.insert("write".into());
                }
                if category_grant {
                    grants.categories.insert(Category::Edit);
                }
                for effect in EFFECTS {
                    let control = flag(4);
                    let spec = ToolSpec { effect, control, ..tool("write", Category::Edit) };
                    let reads = matches!(effect, Effect::ReadOnly | Effect::NetworkRead);
                    let row = Row {
                        per_tool,
                        tool_grant,
                        category_grant,
                        pattern,
                        category,
                        default,
                        yolo,
                        read_only,
                        reads,
                        control,
                    };
                    // Whichever layer says it: the tenant, the agent, the mode, the session.
                    for layer in 0..4 {
                        let mut layers = vec![&none; 3];
                        let own = match layers.get_mut(layer) {
                            Some(place) => {
                                *place = &said;
                                Rules::default()
                            }
                            None => said.clone(),
                        };
                        let session = SessionPermissions { yolo, grants: grants.clone(), ..session(own) };
                        let permissions = Permissions { layers, session: &session, read_only };
                        let verdict = permissions.decide(&spec, &args);
                        let told = || format!("layer {layer}, {said:?}, {session:?}, {read_only}, {spec:?}");
                        assert_eq!(kind(&verdict), row.expected(), "{}", told());
                        assert_eq!(permissions.hides(&spec), row.hidden(), "{}", told());
                        rows += 1;
                    }
                }
            }
        }
    }
    assert_eq!(rows, 4_usize.pow(4) * 32 * EFFECTS.len() * 4);
}

#[test]
fn of_two_layers_the_stricter_counts() {
    let spec = tool("write", Category::Edit);
    let args = json!({"path": "src/main.rs"});
    // One kind of rule at a time; a layer that says nothing does not count.
    let kinds: [fn(Option<Policy>) -> Rules; 4] = [
        |said| rules(said, None, None, None),
        |said| rules(None, said, None, None),
        |said| rules(None, None, said, None),
        |said| rules(None, None, None, said),
    ];
    for make in kinds {
        for (first, second) in POLICIES.into_iter().flat_map(|a| POLICIES.map(|b| (a, b))) {
            let (one, other, none) = (make(first), make(second), Rules::default());
            let expected = first.max(second).unwrap_or(Policy::Ask);
            let plain = SessionPermissions::default();
            for layers in [vec![&one, &other, &none], vec![&none, &one, &other], vec![&other, &none, &one]] {
                let permissions = Permissions { layers, session: &plain, read_only: false };
                assert_eq!(kind(&permissions.decide(&spec, &args)), expected, "{one:?} {other:?}");
            }
            let own = session(one.clone());
            let permissions = Permissions { layers: vec![&other], session: &own, read_only: false };
            assert_eq!(kind(&permissions.decide(&spec, &args)), expected, "{one:?} {other:?}");
        }
    }
}

/// What a session with these permissions decides.
fn decide(session: &SessionPermissions, tool: &ToolSpec, args: Value) -> Policy {
    kind(&Permissions { layers: Vec::new(), session, read_only: false }.decide(tool, &args))
}

#[test]
fn what_a_person_has_granted_holds_where_it_was_granted() {
    use Policy::{Allow, Ask, Deny};
    let (write, shell) = (tool("write", Category::Edit), tool("shell", Category::Execute));
    let other = tool("edit", Category::Edit);
    let plain = SessionPermissions::default();
    // Nothing said: a person is asked, or nobody under yolo; a denial stays one, and the tool is not offered.
    let yolo = SessionPermissions { yolo: true, ..plain.clone() };
    assert_eq!(decide(&plain, &write, json!({})), Ask);
    assert_eq!(decide(&yolo, &write, json!({})), Allow);
    let denied = SessionPermissions { tools: [("write".into(), Deny)].into(), ..yolo };
    assert_eq!(decide(&denied, &write, json!({})), Deny);
    let offered = Permissions { layers: Vec::new(), session: &denied, read_only: false };
    assert!(offered.hides(&write) && !offered.hides(&shell));
    // A tool that is to be asked about is asked about, whatever its category was granted.
    let mut granted = plain;
    granted.grants.categories.insert(Category::Edit);
    assert_eq!(decide(&granted, &other, json!({})), Allow);
    assert_eq!(decide(&granted, &shell, json!({})), Ask);
    granted.tools.insert("write".into(), Ask);
    assert_eq!(decide(&granted, &write, json!({})), Ask);
    // What is forbidden for some is forbidden though more is allowed.
    let git = SessionPermissions {
        patterns: vec![pattern("git*", Allow), pattern("git push --force*", Deny)],
        ..SessionPermissions::default()
    };
    assert_eq!(decide(&git, &shell, json!({"command": "git push"})), Allow);
    assert_eq!(decide(&git, &shell, json!({"command": "git push --force origin"})), Deny);
    assert_eq!(decide(&git, &shell, json!({"command": "ls"})), Ask);
    let offered = Permissions { layers: Vec::new(), session: &git, read_only: false };
    assert!(!offered.hides(&shell), "other calls of it may run");
}

#[test]
fn a_denial_says_which_layer_denies_and_by_what() {
    let (denies, none) = (rules(Some(Policy::Deny), None, None, None), Rules::default());
    let plain = SessionPermissions::default();
    let write = tool("write", Category::Edit);
    for (place, name) in ["tenant", "agent", "mode"].into_iter().enumerate() {
        let mut layers = vec![&none; 3];
        *layers.get_mut(place).unwrap() = &denies;
        let permissions = Permissions { layers, session: &plain, read_only: false };
        let Verdict::Deny(reason) = permissions.decide(&write, &json!({})) else { panic!("denied") };
        assert_eq!(reason, format!("a rule of the {name} forbids write"));
    }
    let own = session(rules(None, None, Some(Policy::Deny), None));
    let permissions = Permissions { layers: Vec::new(), session: &own, read_only: false };
    let denied = Verdict::Deny("a rule of the session forbids all edit tools".into());
    assert_eq!(permissions.decide(&write, &json!({})), denied);
}

/// What becomes of a call where one pattern denies, and where one pattern allows.
fn under(glob: &str, args: &Value) -> [Policy; 2] {
    [Policy::Deny, Policy::Allow].map(|policy| {
        let session =
            SessionPermissions { patterns: vec![pattern(glob, policy)], ..SessionPermissions::default() };
        decide(&session, &tool("any", Category::Other), args.clone())
    })
}

/// A pattern that denies fits, and so does the same one that allows.
const BOTH: [Policy; 2] = [Policy::Deny, Policy::Allow];
/// Denies for safety's sake, and allows nothing for the same reason.
const UNSURE: [Policy; 2] = [Policy::Deny, Policy::Ask];
/// Does not fit.
const NEITHER: [Policy; 2] = [Policy::Ask, Policy::Ask];

#[test]
fn a_path_is_the_same_however_it_is_spelled() {
    for (glob, path, expected) in [
        ("secrets/**", "secrets/key", BOTH),
        ("secrets/**", "/secrets/a/b", BOTH),
        ("/secrets/**", "secrets/key", BOTH),
        ("./secrets/**", "secrets/key", BOTH),
        ("secrets/**", "./secrets/key", BOTH),
        ("secrets/**", "//secrets//key", BOTH),
        ("secrets/**", "a/../secrets/./key", BOTH),
        ("secrets/**", "secrets/../src/key", NEITHER),
        ("src/**", "src/../secrets/key", NEITHER),
        ("secrets/**", "secretsx/key", NEITHER),
        ("secrets/**", "a/secrets/key", NEITHER),
        ("**/.env", ".env", BOTH),
        ("**/.env", "a/b/.env", BOTH),
        ("*.md", "a/b.md", NEITHER),
        ("*.{md,txt}", "b.txt", BOTH),
        ("**", "a/b", BOTH),
        // A folder is denied with what is inside of it, and not allowed with it.
        ("secrets/**", "secrets", UNSURE),
        // Others may read them so.
        ("secrets/**", "secrets\\key", UNSURE),
        ("secrets/**", " secrets/key ", UNSURE),
        ("secrets/**", "secr\u{0}ets/key", UNSURE),
        ("secrets/**", "x\\..\\secrets/key", UNSURE),
        // Nobody knows where that is.
        ("secrets/**", "../w/secrets/key", UNSURE),
        ("secrets/**", "a/../../x", UNSURE),
        ("**", "../x", UNSURE),
    ] {
        assert_eq!(under(glob, &json!({"path": path})), expected, "{glob} {path:?}");
        for name in ["file_path", "filePath", "from", "paths"] {
            assert_eq!(under(glob, &json!({name: [path]})), expected, "{glob} {name} {path:?}");
        }
    }
    let deep = vec!["x"; 40].join("/");
    assert_eq!(under("x/**", &json!({"path": deep})), UNSURE);
}

#[test]
fn a_command_is_taken_apart() {
    for (glob, command, expected) in [
        ("git *", "git push", BOTH),
        ("git *", "  git \t push  ", BOTH),
        ("git *", "gitx push", NEITHER),
        ("git *", "git", NEITHER),
        ("git status", "git status", BOTH),
        ("git*", "git push origin a/b", BOTH),
        ("*a*b*c", "xaxbxc", BOTH),
        ("*a*b*c", "xbxaxc", NEITHER),
        ("rm *", "ls; rm x", UNSURE),
        ("rm *", "ls && rm x", UNSURE),
        ("rm *", "ls || rm x", UNSURE),
        ("rm *", "ls | rm x", UNSURE),
        ("rm *", "ls & rm x", UNSURE),
        ("rm *", "ls\nrm x", UNSURE),
        ("rm *", "ls\r\nrm x", UNSURE),
        ("rm *", "rm x; rm y", BOTH),
        ("rm *", "echo $(rm x)", UNSURE),
        ("rm *", "echo `rm x`", UNSURE),
        ("rm *", "rm $(cat list)", UNSURE),
        ("rm *", "rm x > y", UNSURE),
        ("rm *", "rm < y", UNSURE),
        ("rm *", "(rm x)", BOTH),
        ("rm *", "cat <(rm x)", UNSURE),
        ("rm *", "r\\m x", UNSURE),
        ("rm *", "\"rm\" x", UNSURE),
        ("rm *", "r\\\nm x", UNSURE),
        ("rm *", "rm\\\n x", UNSURE),
        ("rm *", "sudo rm x", UNSURE),
        ("rm *", "A=1 rm x", UNSURE),
        ("rm *", "/bin/rm x", UNSURE),
        ("rm *", "bash -c 'rm x'", UNSURE),
        ("rm *", "ls; if true; then rm x; fi", UNSURE),
        ("rm *", "{ rm x; }", UNSURE),
        ("rm *", "npm rm x", NEITHER),
        // The line does end here: the backslash is the first one's.
        ("git *", "git status \\\\\nrm x", UNSURE),
        ("git *", "git status ';' rm", UNSURE),
        ("git *", "git\u{a0}push", NEITHER),
        ("*", "", UNSURE),
    ] {
        assert_eq!(under(glob, &json!({"command": command})), expected, "{glob} {command:?}");
    }
    assert_eq!(under("git push*", &json!({"cmd": ["git", "push", "--force"]})), BOTH);
    assert_eq!(under("git push*", &json!({"command": "git", "args": ["push", "--force"]})), BOTH);
    assert_eq!(under("git push*", &json!({"command": ["git", "push", 5]})), UNSURE);
    // Each piece may be allowed by a rule of its own.
    let session = SessionPermissions {
        patterns: vec![pattern("git *", Policy::Allow), pattern("ls*", Policy::Allow)],
        ..SessionPermissions::default()
    };
    let shell = tool("shell", Category::Execute);
    assert_eq!(decide(&session, &shell, json!({"command": "ls && git status | ls -l;"})), Policy::Allow);
    assert_eq!(decide(&session, &shell, json!({"command": "ls && git status | wc"})), Policy::Ask);
}

#[test]
fn a_host_is_the_same_however_it_is_spelled() {
    for (glob, url, expected) in [
        ("example.com", "https://example.com/a", BOTH),
        ("example.com", "https://EXAMPLE.com./a", BOTH),
        ("Example.COM.", "https://example.com:8443/a", BOTH),
        ("example.com", "https://example.com.evil.org/", NEITHER),
        ("*.example.com", "https://a.b.example.com/", BOTH),
        ("*.example.com", "https://example.com/", NEITHER),
        ("*.example.com", "https://evilexample.com/", NEITHER),
        ("*.example.com", "https://evil.org/a.example.com", NEITHER),
        ("*.example.com", "https://a.example.com@evil.org/", NEITHER),
        ("evil.org", "https://a.example.com@evil.org/", UNSURE),
        ("a.example.com", "https://a.example.com\\@evil.org/", UNSURE),
        ("*.münchen.de", "https://www.xn--mnchen-3ya.de/", BOTH),
        ("*.münchen.de", "https://www.münchen.de/", BOTH),
        ("MÜNCHEN.de", "https://xn--mnchen-3ya.de/", BOTH),
        ("example.com", "https://ｅｘａｍｐｌｅ.com/", BOTH),
        ("example.com", "ｅｘａｍｐｌｅ.com/x", UNSURE),
        ("example.com", "https://ex%C3%A4mple.com/", NEITHER),
        ("example.com", "https://evil.org/ä", NEITHER),
        ("127.0.0.1", "http://2130706433/", BOTH),
        ("127.0.*", "http://0x7f.1/", BOTH),
        ("evil.org", "evil.org/x", UNSURE),
        ("evil.org", "//evil.org/x", UNSURE),
        ("evil.org", "evil.org:8080/x", UNSURE),
        // A whole URL can be denied; what allows is about hosts.
        ("https://evil.org/*", "https://EVIL.org/x", UNSURE),
        ("https://*.evil.org/*", "https://good.org/", NEITHER),
    ] {
        assert_eq!(under(glob, &json!({"url": url})), expected, "{glob} {url:?}");
        assert_eq!(under(glob, &json!({"urls": [url]})), expected, "{glob} {url:?}");
    }
    assert_eq!(under("*.example.com", &json!({"host": "A.example.com."})), BOTH);
    assert_eq!(under("a.example.com", &json!({"host": "a.example.com:22"})), UNSURE);
    assert_eq!(under("example.com", &json!({"host": "ｅｘａｍｐｌｅ.com"})), BOTH);
    assert_eq!(under("münchen.de", &json!({"host": "xn--mnchen-3ya.de"})), BOTH);
    assert_eq!(under("evil.org", &json!({"host": "good.org@evil.org"})), UNSURE);
}

#[test]
fn of_several_subjects_all_must_be_allowed_and_none_denied() {
    for (args, expected) in [
        (json!({"from": "src/a", "to": "src/b"}), BOTH),
        (json!({"from": "src/a", "to": "b"}), UNSURE),
        (json!({"from": "a", "to": "b"}), NEITHER),
        (json!({"paths": ["src/a", "b"]}), UNSURE),
        (json!({"path": "src/a", "url": "https://example.com"}), UNSURE),
        (json!({"path": "src/a", "file": {"path": "b"}}), UNSURE),
        (json!({"path": "src/a", "file": null, "text": "b"}), BOTH),
        (json!({"paths": []}), NEITHER),
        (json!({"text": "src/a"}), NEITHER),
        (json!({}), NEITHER),
        (json!(null), NEITHER),
    ] {
        assert_eq!(under("src/**", &args), expected, "{args}");
    }
    let two = [(None, Policy::Ask), (Some("other"), Policy::Deny)];
    let patterns =
        two.map(|(tool, policy)| PatternRule { tool: tool.map(Into::into), ..pattern("a", policy) });
    let session = SessionPermissions {
        default: Some(Policy::Allow),
        patterns: patterns.into(),
        ..SessionPermissions::default()
    };
    for (name, expected) in [("any", Policy::Ask), ("other", Policy::Deny)] {
        assert_eq!(decide(&session, &tool(name, Category::Other), json!({"path": "a"})), expected);
        assert_eq!(decide(&session, &tool(name, Category::Other), json!({"path": "b"})), Policy::Allow);
    }
}

#[test]
fn what_steers_the_session_runs_unless_a_rule_names_it() {
    let control = ToolSpec { control: true, ..tool("submit_plan", Category::Other) };
    let args = json!({"path": "plan.md"});
    for default in POLICIES {
        let said = Rules {
            default,
            categories: [(Category::Other, Policy::Ask)].into(),
            patterns: vec![pattern("**", Policy::Ask)],
            ..Rules::default()
        };
        let plain = SessionPermissions::default();
        let permissions = Permissions { layers: vec![&said], session: &plain, read_only: true };
        assert_eq!(permissions.decide(&control, &args), Verdict::Allow);
        assert!(!permissions.hides(&control));
    }
    let named = PatternRule { tool: Some("submit_plan".into()), ..pattern("**", Policy::Ask) };
    for said in [
        SessionPermissions { patterns: vec![named], ..SessionPermissions::default() },
        SessionPermissions { tools: [("submit_plan".into(), Policy::Ask)].into(), ..Default::default() },
    ] {
        assert_eq!(decide(&said, &control, args.clone()), Policy::Ask);
    }
}

#[test]
fn rules_are_checked_and_a_bad_pattern_does_nothing() {
    let long = "x".repeat(501);
    for bad in ["", "[a", "{a", "a\\", "!src/**", &long, &"{a,b}".repeat(10)] {
        let said = Rules {
            patterns: vec![pattern("ok", Policy::Deny), pattern(bad, Policy::Allow)],
            ..Rules::default()
        };
        assert_eq!(said.check().unwrap_err().0, "/patterns/1/pattern", "{bad}");
        for text in ["a", bad, "b/c", "!src/a"] {
            assert_eq!(under(bad, &json!({"path": text})), NEITHER, "{bad} {text}");
            assert_eq!(under(bad, &json!({"command": text})), NEITHER, "{bad} {text}");
        }
    }
    let many = Rules { patterns: vec![pattern("a", Policy::Ask); 201], ..Rules::default() };
    assert_eq!(many.check().unwrap_err().0, "/patterns");
    let names = |count: usize| (0..count).map(|n| (format!("t{n}"), Policy::Ask)).collect();
    assert_eq!(Rules { tools: names(501), ..Rules::default() }.check().unwrap_err().0, "/tools");
    assert_eq!(Rules { tools: names(500), ..Rules::default() }.check(), Ok(()));
    let unnamed = PatternRule { tool: Some(String::new()), ..pattern("a", Policy::Ask) };
    assert_eq!(
        Rules { patterns: vec![unnamed], ..Rules::default() }.check().unwrap_err().0,
        "/patterns/0/tool"
    );
    let grants = Grants { tools: (0..501).map(|n| n.to_string()).collect(), ..Grants::default() };
    let session = SessionPermissions { grants, ..SessionPermissions::default() };
    assert_eq!(session.check().unwrap_err().0, "/grants/tools");
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Allow), Just(Policy::Ask), Just(Policy::Deny)]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let patterns = prop::collection::vec(
        ("(src/\\*\\*|\\*\\*|a\\*|git \\*|\\*|rm \\*|\\[)", any_policy(), prop::option::of("(write|shell)")),
        0..4,
    );
    let category = prop_oneof![Just(Category::Edit), Just(Category::Execute), Just(Category::Read)];
    (
        prop::option::of(any_policy()),
        prop::collection::btree_map(category, any_policy(), 0..3),
        prop::collection::btree_map("(write|shell)", any_policy(), 0..2),
        patterns,
    )
        .prop_map(|(default, categories, tools, patterns)| Rules {
            default,
            categories,
            tools,
            patterns: patterns
                .into_iter()
                .map(|(pattern, policy, tool)| PatternRule { tool, pattern, policy })
                .collect(),
        })
}

/// What happens in a session: somebody grants, or writes rules, or turns yolo on or off.
#[derive(Clone, Debug)]
enum Act {
    Grant(String),
    GrantAll(Category),
    Yolo(bool),
    Rules(usize, Rules),
    ReadOnly(bool),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        "(write|shell)".prop_map(Act::Grant),
        prop_oneof![Just(Category::Edit), Just(Category::Execute)].prop_map(Act::GrantAll),
        any::<bool>().prop_map(Act::Yolo),
        (0..4_usize, any_rules()).prop_map(|(layer, rules)| Act::Rules(layer, rules)),
        any::<bool>().prop_map(Act::ReadOnly),
    ]
}

proptest! {
    #[test]
    fn nothing_lifts_a_denial(acts in prop::collection::vec(any_act(), 0..12), edits in any::<bool>(),
                              path in "(\\./|/|b/\\.\\./)?(src/|a)x", command in "(git|rm|ls) x( ?[;|] ?(rm|git) y)?") {
        let (mut layers, mut grants) = (vec![Rules::default(); 4], Grants::default());
        let (mut yolo, mut read_only) = (false, false);
        let spec = if edits { tool("write", Category::Edit) } else { tool("shell", Category::Execute) };
        let args = if edits { json!({"path": path}) } else { json!({"command": command}) };
        for act in acts {
            match act {
                Act::Grant(tool) => drop(grants.tools.insert(tool)),
                Act::GrantAll(category) => drop(grants.categories.insert(category)),
                Act::Yolo(on) => yolo = on,
                Act::Rules(layer, rules) => *layers.get_mut(layer).unwrap() = rules,
                Act::ReadOnly(on) => read_only = on,
            }
            let own = SessionPermissions { yolo, grants: grants.clone(), ..session(layers[3].clone()) };
            let permissions = Permissions { layers: layers[..3].iter().collect(), session: &own, read_only };
            let verdict = permissions.decide(&spec, &args);
            let deny = Some(&Policy::Deny);
            // By the tool and the category; patterns each on its own, with nothing else said.
            let denied = read_only || layers.iter().any(|rules| {
                let alone = |rule: &PatternRule| {
                    let only = SessionPermissions { patterns: vec![rule.clone()], ..SessionPermissions::default() };
                    decide(&only, &spec, args.clone()) == Policy::Deny
                };
                rules.tools.get(&spec.name) == deny
                    || rules.categories.get(&spec.category) == deny
                    || rules.patterns.iter().any(alone)
            });
            if denied {
                prop_assert_eq!(kind(&verdict), Policy::Deny);
            }
            if permissions.hides(&spec) {
                prop_assert_eq!(kind(&verdict), Policy::Deny);
            }
        }
    }

    #[test]
    fn a_denied_folder_is_left_by_no_detour(detour in "((\\.|[ab]/\\.\\.|[ab]/b/\\.\\./\\.\\.)?/){0,4}", name in "[a-z]{1,4}") {
        let path = format!("{detour}secrets/{name}");
        prop_assert_eq!(under("secrets/**", &json!({"path": path})), BOTH);
        let escaped = format!("../{path}");
        prop_assert_eq!(under("secrets/**", &json!({"path": escaped})), UNSURE);
    }

    #[test]
    fn nothing_behind_an_allowed_command_is_allowed_with_it(
        sign in "(;|&&|\\|\\||\\||&|\n|\r\n)", space in "[ \t]{0,2}", quote in "['\"]?",
    ) {
        let command = format!("git status{space}{sign}{space}{quote}rm x{quote}");
        prop_assert_eq!(under("git *", &json!({"command": command}))[1], Policy::Ask);
        prop_assert_eq!(under("rm *", &json!({"command": command}))[0], Policy::Deny);
    }
}
