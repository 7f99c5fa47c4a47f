//! Tests the decision table exhaustively, and checks that no spelling and no sequence of changes evades a
//! denial.

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
        parameters: json!({"type": "object"}).into(),
        effect: Effect::Destructive,
        idempotent: false,
        retry_on_timeout: false,
        varies: false,
        category,
        control: false,
        suspends: None,
        client_may_repeat: false,
    }
}

fn pattern(pattern: &str, policy: Policy) -> PatternRule {
    PatternRule { tool: None, pattern: pattern.into(), policy }
}

/// Returns rules with one rule of each kind.
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

static NONE: Rules = Rules::new();

/// Returns the permissions of a session to which only its own rules apply.
fn of_session(session: &SessionPermissions) -> Permissions<'_> {
    Permissions::new([&NONE; 3], [&NONE; 2], session, &[], false)
}

/// Returns session permissions with these rules.
fn session(rules: Rules) -> SessionPermissions {
    let Rules { default, categories, tools, patterns } = rules;
    SessionPermissions { default, categories, tools, patterns, yolo: false, grants: Grants::default() }
}

fn kind(verdict: &Verdict) -> Policy {
    match verdict {
        Verdict::Allow => Policy::Allow,
        Verdict::Ask(_) => Policy::Ask,
        Verdict::Deny(reason) => {
            assert!(reason.len() > 20 && !reason.contains("src/**"), "{reason}");
            Policy::Deny
        }
    }
}

/// One row of the decision table: a call that the pattern matches, and one set of rules.
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
    /// Whether the rules are the operator's, and not the session's.
    operators: bool,
}

impl Row {
    /// Returns the specified decision: the first line that applies.
    fn expected(&self) -> Policy {
        use Policy::{Allow, Ask, Deny};
        let unruled = if self.yolo { Allow } else { Ask };
        // Neither grants nor yolo lift what the operator asks about.
        let ask = if self.operators { Ask } else { unruled };
        let granted = !self.operators && (self.tool_grant || self.category_grant);
        let is = |given: Option<Policy>, policy| given == Some(policy);
        let table = [
            (is(self.per_tool, Deny), Deny),
            (is(self.category, Deny), Deny),
            (is(self.pattern, Deny), Deny),
            (self.read_only && !self.reads && !self.control, Deny),
            (is(self.per_tool, Ask), ask),
            (is(self.per_tool, Allow), Allow),
            (granted, Allow),
            (is(self.pattern, Ask) && !self.control, ask),
            (is(self.pattern, Allow), Allow),
            (self.control, Allow),
            (is(self.category, Ask), ask),
            (is(self.category, Allow), Allow),
            (is(self.default, Deny), Deny),
            (is(self.default, Ask), ask),
            (is(self.default, Allow), Allow),
            (self.tool_grant || self.category_grant, Allow),
            (true, unruled),
        ];
        table.into_iter().find(|(applies, _)| *applies).unwrap().1
    }

    /// Returns whether every call would be denied.
    fn hidden(&self) -> bool {
        let deny = Some(Policy::Deny);
        let may = self.per_tool.is_some()
            || !self.operators && (self.tool_grant || self.category_grant)
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
fn every_decision_matches_the_table() {
    let args = json!({"path": "src/main.rs"});
    let mut rows = 0;
    for (per_tool, pattern) in POLICIES.into_iter().flat_map(|a| POLICIES.map(|b| (a, b))) {
        for (category, default) in POLICIES.into_iter().flat_map(|a| POLICIES.map(|b| (a, b))) {
            let given = rules(per_tool, pattern, category, default);
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
                    let mut row = Row {
                        operators: true,
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
                    // In each layer: the tenant, the deployment, its mode, the session.
                    for layer in 0..4 {
                        let mut layers = [&NONE; 3];
                        let own = match layers.get_mut(layer) {
                            Some(place) => {
                                *place = &given;
                                Rules::default()
                            }
                            None => given.clone(),
                        };
                        row.operators = layer < 3;
                        let session = SessionPermissions { yolo, grants: grants.clone(), ..session(own) };
                        let permissions = Permissions::new(layers, [&NONE; 2], &session, &[], read_only);
                        let verdict = permissions.decide(&spec, &args);
                        let context =
                            || format!("layer {layer}, {given:?}, {session:?}, {read_only}, {spec:?}");
                        assert_eq!(kind(&verdict), row.expected(), "{}", context());
                        assert_eq!(permissions.hides(&spec), row.hidden(), "{}", context());
                        rows += 1;
                    }
                }
            }
        }
    }
    assert_eq!(rows, 4_usize.pow(4) * 32 * EFFECTS.len() * 4);
}

#[test]
fn the_stricter_of_two_layers_applies() {
    let spec = tool("write", Category::Edit);
    let args = json!({"path": "src/main.rs"});
    // One kind of rule at a time; a layer without rules does not count.
    let kinds: [fn(Option<Policy>) -> Rules; 4] = [
        |given| rules(given, None, None, None),
        |given| rules(None, given, None, None),
        |given| rules(None, None, given, None),
        |given| rules(None, None, None, given),
    ];
    for make in kinds {
        for (first, second) in POLICIES.into_iter().flat_map(|a| POLICIES.map(|b| (a, b))) {
            let (one, other) = (make(first), make(second));
            let expected = first.max(second).unwrap_or(Policy::Ask);
            let defaults = SessionPermissions::default();
            for layers in [[&one, &other, &NONE], [&NONE, &one, &other], [&other, &NONE, &one]] {
                let permissions = Permissions::new(layers, [&NONE; 2], &defaults, &[], false);
                assert_eq!(kind(&permissions.decide(&spec, &args)), expected, "{one:?} {other:?}");
            }
            let own = session(one.clone());
            let permissions = Permissions::new([&other, &NONE, &NONE], [&NONE; 2], &own, &[], false);
            assert_eq!(kind(&permissions.decide(&spec, &args)), expected, "{one:?} {other:?}");
        }
    }
}

/// Returns the decision of a session with these permissions.
fn decide(session: &SessionPermissions, tool: &ToolSpec, args: Value) -> Policy {
    kind(&of_session(session).decide(tool, &args))
}

#[test]
fn edits_of_context_files_ask_the_user_unless_an_operator_decides() {
    let files = ["AGENTS.md", "docs/style.md", "skills"].map(|path| FilePath::parse(path).unwrap());
    let verdict = |operators: &Rules, session: &SessionPermissions, tool: &ToolSpec, args: Value| {
        Permissions::new([operators, &NONE, &NONE], [&NONE; 2], session, &files, false).decide(tool, &args)
    };
    let (edit, read) = (tool("write", Category::Edit), tool("read", Category::Read));
    let allow = |default| Rules { default: Some(default), ..Rules::default() };
    let (open, own) = (allow(Policy::Allow), SessionPermissions::default());
    let asks = Verdict::Ask(Decider::User);
    for (args, expected) in [
        (json!({"path": "AGENTS.md"}), &asks),
        (json!({"path": "./x/../AGENTS.md"}), &asks),
        (json!({"from": "a.md", "to": "docs//style.md"}), &asks),
        (json!({"from": "docs/style.md", "to": "a.md"}), &asks),
        (json!({"path": "skills/pdf/SKILL.md"}), &asks),
        (json!({"path": "x/../skills/a"}), &asks),
        (json!({"path": "skills2/a"}), &Verdict::Allow),
        (json!({"path": "a/skills/b"}), &Verdict::Allow),
        (json!({"path": "../AGENTS.md"}), &Verdict::Allow),
        (json!({"path": "x/AGENTS.md"}), &Verdict::Allow),
        (json!({"path": "agents.md"}), &Verdict::Allow),
        (json!({"command": "AGENTS.md"}), &Verdict::Allow),
    ] {
        assert_eq!(verdict(&open, &own, &edit, args.clone()), *expected, "{args}");
        assert_eq!(verdict(&open, &own, &read, args.clone()), Verdict::Allow, "{args}");
    }
    // Neither the session's rules nor yolo lift the built-in default; each kind of an operator's rule does.
    let args = || json!({"path": "AGENTS.md"});
    let lifted = SessionPermissions { yolo: true, ..session(rules(Some(Policy::Allow), None, None, None)) };
    assert_eq!(verdict(&open, &lifted, &edit, args()), asks);
    for (operators, expected) in [
        (rules(Some(Policy::Allow), None, None, None), Verdict::Allow),
        (rules(None, None, Some(Policy::Allow), None), Verdict::Allow),
        (Rules { patterns: vec![pattern("*.md", Policy::Allow)], ..Rules::default() }, Verdict::Allow),
        (allow(Policy::Ask), Verdict::Ask(Decider::Approver)),
    ] {
        assert_eq!(verdict(&operators, &own, &edit, args()), expected, "{operators:?}");
    }
    for operators in [rules(Some(Policy::Deny), None, None, None), allow(Policy::Deny)] {
        assert!(matches!(verdict(&operators, &lifted, &edit, args()), Verdict::Deny(_)), "{operators:?}");
    }
}

#[test]
fn a_definition_can_only_restrict_what_the_tenant_and_the_deployment_decide() {
    use Policy::{Allow, Ask, Deny};
    let (write, shell) = (tool("write", Category::Edit), tool("shell", Category::Execute));
    let allows = Rules {
        tools: [("write".into(), Allow)].into(),
        categories: [(Category::Execute, Allow)].into(),
        patterns: vec![pattern("**", Allow)],
        default: Some(Allow),
    };
    let session = SessionPermissions::default();
    let verdict = |deployment: &Rules, definition: &Rules, spec: &ToolSpec| {
        let files = [FilePath::parse("AGENTS.md").unwrap()];
        let permissions =
            Permissions::new([&NONE, deployment, &NONE], [definition; 2], &session, &files, false);
        let verdict = permissions.decide(spec, &json!({"path": "AGENTS.md"}));
        assert_eq!(permissions.hides(spec), kind(&verdict) == Deny, "{spec:?}");
        kind(&verdict)
    };
    for policy in [Deny, Ask] {
        let by_default = rules(None, None, None, Some(policy));
        assert_eq!(
            [verdict(&by_default, &allows, &write), verdict(&by_default, &allows, &shell)],
            [policy; 2]
        );
        assert_eq!(verdict(&rules(None, None, Some(policy), None), &allows, &write), policy);
        let open = rules(None, None, None, Some(Allow));
        assert_eq!(verdict(&open, &rules(Some(policy), None, None, None), &write), policy);
    }
    assert_eq!(verdict(&NONE, &allows, &shell), Allow);
    // The built-in default for context files is the operator's to lift.
    assert_eq!(verdict(&NONE, &allows, &write), Ask);
}

#[test]
fn grants_apply_within_their_session() {
    use Policy::{Allow, Ask, Deny};
    let (write, shell) = (tool("write", Category::Edit), tool("shell", Category::Execute));
    let other = tool("edit", Category::Edit);
    let defaults = SessionPermissions::default();
    // Without rules a person is asked, or the call runs in yolo mode; a denied tool is never offered.
    let yolo = SessionPermissions { yolo: true, ..defaults.clone() };
    assert_eq!(decide(&defaults, &write, json!({})), Ask);
    assert_eq!(decide(&yolo, &write, json!({})), Allow);
    let denied = SessionPermissions { tools: [("write".into(), Deny)].into(), ..yolo };
    assert_eq!(decide(&denied, &write, json!({})), Deny);
    let offered = of_session(&denied);
    assert!(offered.hides(&write) && !offered.hides(&shell));
    // An `ask` rule for a tool outranks a grant for its category.
    let mut granted = defaults;
    granted.grants.categories.insert(Category::Edit);
    assert_eq!(decide(&granted, &other, json!({})), Allow);
    assert_eq!(decide(&granted, &shell, json!({})), Ask);
    granted.tools.insert("write".into(), Ask);
    assert_eq!(decide(&granted, &write, json!({})), Ask);
    // A narrow denial outranks a broader allowance.
    let git = SessionPermissions {
        patterns: vec![pattern("git*", Allow), pattern("git push --force*", Deny)],
        ..SessionPermissions::default()
    };
    assert_eq!(decide(&git, &shell, json!({"command": "git push"})), Allow);
    assert_eq!(decide(&git, &shell, json!({"command": "git push --force origin"})), Deny);
    assert_eq!(decide(&git, &shell, json!({"command": "ls"})), Ask);
    let offered = of_session(&git);
    assert!(!offered.hides(&shell), "other calls of the tool may run");
}

#[test]
fn a_denial_names_its_layer_and_rule() {
    let denies = rules(Some(Policy::Deny), None, None, None);
    let defaults = SessionPermissions::default();
    let write = tool("write", Category::Edit);
    for (place, name) in ["tenant", "deployment", "mode", "agent", "mode"].into_iter().enumerate() {
        let at = |own: usize| if own == place { &denies } else { &NONE };
        let (operator, definition) = ([at(0), at(1), at(2)], [at(3), at(4)]);
        let permissions = Permissions::new(operator, definition, &defaults, &[], false);
        let Verdict::Deny(reason) = permissions.decide(&write, &json!({})) else { panic!("denied") };
        assert_eq!(reason, format!("a rule of the {name} forbids write"));
    }
    let own = session(rules(None, None, Some(Policy::Deny), None));
    let permissions = of_session(&own);
    let denied = Verdict::Deny("a rule of the session forbids all edit tools".into());
    assert_eq!(permissions.decide(&write, &json!({})), denied);
}

/// Returns the decisions of one pattern that denies and of the same pattern that allows.
fn under(glob: &str, args: &Value) -> [Policy; 2] {
    [Policy::Deny, Policy::Allow].map(|policy| {
        let session =
            SessionPermissions { patterns: vec![pattern(glob, policy)], ..SessionPermissions::default() };
        decide(&session, &tool("any", Category::Other), args.clone())
    })
}

/// The pattern applies, whether it denies or allows.
const BOTH: [Policy; 2] = [Policy::Deny, Policy::Allow];
/// The pattern denies, to be safe, but does not allow.
const UNSURE: [Policy; 2] = [Policy::Deny, Policy::Ask];
/// The pattern does not apply.
const NEITHER: [Policy; 2] = [Policy::Ask, Policy::Ask];

#[test]
fn spellings_of_a_path_are_equivalent() {
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
        // A pattern that denies the contents of a folder also denies the folder, but does not allow it.
        ("secrets/**", "secrets", UNSURE),
        // Another program might read these paths differently.
        ("secrets/**", "secrets\\key", UNSURE),
        ("secrets/**", " secrets/key ", UNSURE),
        ("secrets/**", "secr\u{0}ets/key", UNSURE),
        ("secrets/**", "x\\..\\secrets/key", UNSURE),
        // These locations cannot be determined.
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
fn commands_are_split_into_parts() {
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
        // The command ends here: the first backslash escapes the second.
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
    // Different rules may allow different parts of the command.
    let session = SessionPermissions {
        patterns: vec![pattern("git *", Policy::Allow), pattern("ls*", Policy::Allow)],
        ..SessionPermissions::default()
    };
    let shell = tool("shell", Category::Execute);
    assert_eq!(decide(&session, &shell, json!({"command": "ls && git status | ls -l;"})), Policy::Allow);
    assert_eq!(decide(&session, &shell, json!({"command": "ls && git status | wc"})), Policy::Ask);
}

#[test]
fn spellings_of_a_host_are_equivalent() {
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
        // URL patterns can deny, but only host patterns can allow.
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
fn every_subject_must_be_allowed_and_none_denied() {
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
fn control_tools_run_unless_a_rule_names_them() {
    let control = ToolSpec { control: true, ..tool("submit_plan", Category::Other) };
    let args = json!({"path": "plan.md"});
    for default in POLICIES {
        let given = Rules {
            default,
            categories: [(Category::Other, Policy::Ask)].into(),
            patterns: vec![pattern("**", Policy::Ask)],
            ..Rules::default()
        };
        let defaults = SessionPermissions::default();
        let permissions = Permissions::new([&given, &NONE, &NONE], [&NONE; 2], &defaults, &[], true);
        assert_eq!(permissions.decide(&control, &args), Verdict::Allow);
        assert!(!permissions.hides(&control));
    }
    let named = PatternRule { tool: Some("submit_plan".into()), ..pattern("**", Policy::Ask) };
    for given in [
        SessionPermissions { patterns: vec![named], ..SessionPermissions::default() },
        SessionPermissions { tools: [("submit_plan".into(), Policy::Ask)].into(), ..Default::default() },
    ] {
        assert_eq!(decide(&given, &control, args.clone()), Policy::Ask);
    }
}

#[test]
fn malformed_patterns_are_reported_and_ignored() {
    let long = "x".repeat(501);
    for bad in ["", "[a", "{a", "a\\", "!src/**", &long, &"{a,b}".repeat(10)] {
        let given = Rules {
            patterns: vec![pattern("ok", Policy::Deny), pattern(bad, Policy::Allow)],
            ..Rules::default()
        };
        assert_eq!(given.check().unwrap_err().pointer, "/patterns/1/pattern", "{bad}");
        for text in ["a", bad, "b/c", "!src/a"] {
            assert_eq!(under(bad, &json!({"path": text})), NEITHER, "{bad} {text}");
            assert_eq!(under(bad, &json!({"command": text})), NEITHER, "{bad} {text}");
        }
    }
    let many = Rules { patterns: vec![pattern("a", Policy::Ask); 201], ..Rules::default() };
    assert_eq!(many.check().unwrap_err().pointer, "/patterns");
    let names = |count: usize| (0..count).map(|n| (format!("t{n}"), Policy::Ask)).collect();
    assert_eq!(Rules { tools: names(501), ..Rules::default() }.check().unwrap_err().pointer, "/tools");
    assert_eq!(Rules { tools: names(500), ..Rules::default() }.check(), Ok(()));
    let unnamed = PatternRule { tool: Some(String::new()), ..pattern("a", Policy::Ask) };
    assert_eq!(
        Rules { patterns: vec![unnamed], ..Rules::default() }.check().unwrap_err().pointer,
        "/patterns/0/tool"
    );
    let grants = Grants { tools: (0..501).map(|n| n.to_string()).collect(), ..Grants::default() };
    let session = SessionPermissions { grants, ..SessionPermissions::default() };
    assert_eq!(session.check().unwrap_err().pointer, "/grants/tools");
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

/// A change in a session: a grant, new rules, or yolo mode.
#[derive(Clone, Debug)]
enum Change {
    Grant(String),
    GrantAll(Category),
    Yolo(bool),
    Rules(usize, Rules),
    ReadOnly(bool),
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        "(write|shell)".prop_map(Change::Grant),
        prop_oneof![Just(Category::Edit), Just(Category::Execute)].prop_map(Change::GrantAll),
        any::<bool>().prop_map(Change::Yolo),
        (0..4_usize, any_rules()).prop_map(|(layer, rules)| Change::Rules(layer, rules)),
        any::<bool>().prop_map(Change::ReadOnly),
    ]
}

proptest! {
    #[test]
    fn no_change_lifts_a_denial(changes in prop::collection::vec(any_change(), 0..12), edits in any::<bool>(),
                              path in "(\\./|/|b/\\.\\./)?(src/|a)x", command in "(git|rm|ls) x( ?[;|] ?(rm|git) y)?") {
        let (mut layers, mut grants) = (<[Rules; 4]>::default(), Grants::default());
        let (mut yolo, mut read_only) = (false, false);
        let spec = if edits { tool("write", Category::Edit) } else { tool("shell", Category::Execute) };
        let args = if edits { json!({"path": path}) } else { json!({"command": command}) };
        for change in changes {
            match change {
                Change::Grant(tool) => drop(grants.tools.insert(tool)),
                Change::GrantAll(category) => drop(grants.categories.insert(category)),
                Change::Yolo(on) => yolo = on,
                Change::Rules(layer, rules) => *layers.get_mut(layer).unwrap() = rules,
                Change::ReadOnly(on) => read_only = on,
            }
            let own = SessionPermissions { yolo, grants: grants.clone(), ..session(layers[3].clone()) };
            let [tenant, deployment, mode, _] = &layers;
            let permissions = Permissions::new([tenant, deployment, mode], [&NONE; 2], &own, &[], read_only);
            let verdict = permissions.decide(&spec, &args);
            let deny = Some(&Policy::Deny);
            // Denied by the tool, the category, or any single pattern on its own.
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
    fn detours_in_a_path_do_not_evade_a_denial(detour in "((\\.|[ab]/\\.\\.|[ab]/b/\\.\\./\\.\\.)?/){0,4}", name in "[a-z]{1,4}") {
        let path = format!("{detour}secrets/{name}");
        prop_assert_eq!(under("secrets/**", &json!({"path": path})), BOTH);
        let escaped = format!("../{path}");
        prop_assert_eq!(under("secrets/**", &json!({"path": escaped})), UNSURE);
    }

    #[test]
    fn commands_chained_to_an_allowed_command_are_not_allowed(
        sign in "(;|&&|\\|\\||\\||&|\n|\r\n)", space in "[ \t]{0,2}", quote in "['\"]?",
    ) {
        let command = format!("git status{space}{sign}{space}{quote}rm x{quote}");
        prop_assert_eq!(under("git *", &json!({"command": command}))[1], Policy::Ask);
        prop_assert_eq!(under("rm *", &json!({"command": command}))[0], Policy::Deny);
    }
}

#[test]
fn the_operators_rules_hold_against_the_user_and_say_who_decides() {
    let (spec, args) = (tool("write", Category::Edit), json!({"path": "src/main.rs"}));
    let parse = |rules: Value| serde_json::from_value::<Rules>(rules).unwrap();
    // Everything that the user of a session may set.
    let loosened = SessionPermissions {
        yolo: true,
        tools: [("write".into(), Policy::Allow)].into(),
        default: Some(Policy::Allow),
        grants: Grants { tools: ["write".into()].into(), categories: [Category::Edit].into() },
        ..SessionPermissions::default()
    };
    let decide = |rules: &Rules, session: &SessionPermissions| {
        Permissions::new([rules, &NONE, &NONE], [&NONE; 2], session, &[], false).decide(&spec, &args)
    };
    for ask in [json!("ask"), json!({"policy": "ask"}), json!({"policy": "ask", "by": "approver"})] {
        for rules in
            [json!({"tools": {"write": ask}}), json!({"categories": {"edit": ask}}), json!({"default": ask})]
        {
            assert_eq!(decide(&parse(rules), &loosened), Verdict::Ask(Decider::Approver));
        }
    }
    let by_user = json!({"policy": "ask", "by": "user"});
    for rules in [json!({"tools": {"write": by_user}}), json!({"default": by_user})] {
        assert_eq!(decide(&parse(rules), &loosened), Verdict::Ask(Decider::User));
    }
    let pattern = |by: &str| parse(json!({"patterns": [{"pattern": "src/**", "policy": "ask", "by": by}]}));
    assert_eq!(decide(&pattern("user"), &loosened), Verdict::Ask(Decider::User));
    assert_eq!(decide(&pattern("approver"), &loosened), Verdict::Ask(Decider::Approver));
    assert!(matches!(decide(&parse(json!({"default": "deny"})), &loosened), Verdict::Deny(_)));
    // In the session's own rules, the user decides.
    let own = SessionPermissions { default: Some(Policy::Ask), ..SessionPermissions::default() };
    assert_eq!(decide(&Rules::default(), &own), Verdict::Ask(Decider::User));
}

#[test]
fn policies_are_written_as_names_or_objects() {
    let rules = json!({"tools": {"a": "allow", "b": "ask", "c": {"policy": "ask", "by": "user"}, "d": "deny"},
        "patterns": [{"pattern": "x", "policy": "ask", "by": "user"}, {"tool": "b", "pattern": "y", "policy": "deny"}]});
    let read: Rules = serde_json::from_value(rules.clone()).unwrap();
    assert_eq!(
        read.tools.values().copied().collect::<Vec<_>>(),
        [Policy::Allow, Policy::Ask, Policy::AskUser, Policy::Deny]
    );
    assert_eq!(json!(read), rules);
    for bad in [
        json!("maybe"),
        json!({"policy": "deny", "by": "user"}),
        json!({"by": "user"}),
        json!(1),
        json!({"policy": "ask", "by": "me"}),
    ] {
        assert!(serde_json::from_value::<Policy>(bad.clone()).is_err(), "{bad}");
    }
}
