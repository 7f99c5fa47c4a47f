//! The tools that the runner offers, a file for each kind.

mod commands;
mod diagram;
mod patch;
mod read;
mod search;
mod symbols;
mod tree;
mod walk;
mod workspace;
mod write;

pub use commands::Commands;

use super::{
    job::{Reach, Work},
    root::Root,
    tool_error::ToolError,
};
use crate::wire::Pending;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A tool, as it runs.
#[derive(Clone, Copy)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    kind: Kind,
}

/// A tool that agents declare as an external tool.
pub struct LocalTool {
    /// Its name. The prefix keeps it apart from the server's own tools.
    name: &'static str,
    description: &'static str,
    /// Its category in permission rules.
    category: &'static str,
    effect: &'static str,
    /// Its arguments, of which the first ones are required.
    args: &'static [(&'static str, &'static str, &'static str)],
    required: usize,
    kind: Kind,
}

/// How a tool runs.
#[derive(Clone, Copy)]
enum Kind {
    /// In the process of the call, which sees only the folder.
    Read(fn(Value, &Root) -> Result<String, ToolError>),
    /// As a file tool of the workspace, in the process of the call, which sees only the folder.
    ReadWorkspace,
    /// As a file tool of the workspace, in the process of the call, which may also change the folder.
    WriteWorkspace,
    /// In the process of the call, which may also change the folder.
    Write(fn(Value, &Root) -> Result<String, ToolError>),
    /// As `Write`, with a result that is not shortened.
    Render(fn(Value, &Root) -> Result<String, ToolError>),
    /// As a program that only reads.
    Inspect(fn(&Commands, Value) -> Result<Vec<String>, ToolError>),
    /// As a program that may change the folder.
    Run(fn(&Commands, Value) -> Result<Vec<String>, ToolError>),
    /// As a program that may change the folder, and that fails if it finds a fault.
    Check(fn(&Commands, Value) -> Result<Vec<String>, ToolError>),
}

/// The tools that agents declare.
pub const TOOLS: &[LocalTool] = &[
    LocalTool {
        name: "local_read",
        description: "Reads a text file of the user's folder, up to 400 lines at a time.",
        category: "read",
        effect: "read_only",
        args: &[
            ("path", "string", "Path in the folder."),
            ("first_line", "integer", "Line to begin with, starting at 1."),
            ("lines", "integer", "Number of lines, at most 400."),
        ],
        required: 1,
        kind: Kind::Read(read::read),
    },
    LocalTool {
        name: "local_repo_tree",
        description: "Lists the files of the user's folder, without those that Git ignores.",
        category: "read",
        effect: "read_only",
        args: &[("path", "string", "Subfolder to list."), ("depth", "integer", "Levels to list, at most 8.")],
        required: 0,
        kind: Kind::Read(tree::tree),
    },
    LocalTool {
        name: "local_search",
        description: "Searches the files of the user's folder for a regular expression, and returns the matching lines.",
        category: "read",
        effect: "read_only",
        args: &[
            ("pattern", "string", "Regular expression."),
            ("path", "string", "Subfolder or file to search."),
            ("glob", "string", "Searches only files with such paths, such as \"*.rs\"."),
            ("ignore_case", "boolean", "Whether capital letters do not matter."),
        ],
        required: 1,
        kind: Kind::Read(search::search),
    },
    LocalTool {
        name: "local_repo_map",
        description: "Lists the functions, types and other definitions in the source files of the user's folder.",
        category: "read",
        effect: "read_only",
        args: &[
            ("path", "string", "Subfolder or file."),
            ("glob", "string", "Only files with such paths, such as \"src/*.rs\"."),
        ],
        required: 0,
        kind: Kind::Read(symbols::map),
    },
    LocalTool {
        name: "local_symbol_query",
        description: "Finds the definitions of a function, type or other symbol in the user's folder by its name.",
        category: "read",
        effect: "read_only",
        args: &[("name", "string", "Name, or a part of it."), ("path", "string", "Subfolder or file.")],
        required: 1,
        kind: Kind::Read(symbols::query),
    },
    LocalTool {
        name: "local_git_status",
        description: "Returns the branch and the changed files of the user's folder.",
        category: "read",
        effect: "read_only",
        args: &[],
        required: 0,
        kind: Kind::Inspect(Commands::git_status),
    },
    LocalTool {
        name: "local_git_diff",
        description: "Returns the changes in the user's folder that are not committed.",
        category: "read",
        effect: "read_only",
        args: &[
            ("path", "string", "Subfolder or file."),
            ("staged", "boolean", "Whether to return the changes that are staged for the next commit."),
        ],
        required: 0,
        kind: Kind::Inspect(Commands::git_diff),
    },
    LocalTool {
        name: "local_write",
        description: "Creates or replaces a text file in the user's folder. Use local_apply_patch for a part of a file.",
        category: "edit",
        effect: "local_write",
        args: &[("path", "string", "Path in the folder."), ("content", "string", "The whole text.")],
        required: 2,
        kind: Kind::Write(write::write),
    },
    LocalTool {
        name: "local_apply_patch",
        description: "Applies a unified diff to files in the user's folder: all of it, or nothing if a part does not fit.",
        category: "edit",
        effect: "local_write",
        args: &[("patch", "string", "Unified diff, as of `git diff`, of one or more files.")],
        required: 1,
        kind: Kind::Write(patch::apply),
    },
    LocalTool {
        name: "local_diagram",
        description: "Renders a diagram in Mermaid as SVG: into a file of the user's folder, or else as the result.",
        category: "edit",
        effect: "local_write",
        args: &[
            ("diagram", "string", "The diagram in Mermaid."),
            ("path", "string", "Path of the file in the folder, which ends with .svg."),
        ],
        required: 1,
        kind: Kind::Render(diagram::diagram),
    },
    LocalTool {
        name: "local_shell",
        description: "Runs a command of the shell in the user's folder, without input, and returns its output.",
        category: "execute",
        effect: "destructive",
        args: &[
            ("command", "string", "The command."),
            ("timeout_s", "integer", "Seconds after which the command is ended."),
        ],
        required: 1,
        kind: Kind::Run(Commands::shell),
    },
    LocalTool {
        name: "local_verify",
        description: "Checks the user's folder by the commands of the project, such as its tests, and returns their output.",
        category: "execute",
        effect: "local_write",
        args: &[],
        required: 0,
        kind: Kind::Check(Commands::verify),
    },
];

/// Returns the tool with this name: one that agents declare, or a file tool of the workspace.
pub fn find(name: &str) -> Option<Tool> {
    let local = TOOLS.iter().find(|tool| tool.name == name).map(LocalTool::tool);
    local.or_else(|| workspace::TOOLS.iter().find(|tool| tool.name == name).copied())
}

/// Returns the tool of a call that waits, and its arguments; `None` if the call is not for a runner. A call of a file tool is
/// one only if the server says that it is about the runner's folder, because other clients may have tools of these names. The
/// payload of such a tool is its arguments, which the model writes, so it never contains them.
pub fn for_call(call: &Pending) -> Option<(Tool, &Value)> {
    if call.kind != "external" {
        return None;
    }
    if call.payload["workspace"] == "runner"
        && call.payload["args"] == call.args
        && let Some(tool) = workspace::TOOLS.iter().find(|tool| tool.name == call.name)
    {
        return Some((*tool, &call.args));
    }
    let tool = TOOLS.iter().find(|tool| tool.name == call.name)?.tool();
    Some((tool, if call.payload.is_null() { &call.args } else { &call.payload }))
}

impl LocalTool {
    fn tool(&self) -> Tool {
        Tool { name: self.name, kind: self.kind }
    }

    /// Returns the declaration, an entry of `external_tools` in the definition of an agent.
    pub fn declaration(&self) -> Value {
        let Self { name, description, category, effect, args, required, .. } = self;
        let property = |(name, kind, description): &(&str, &str, &str)| {
            ((*name).to_owned(), json!({"type": kind, "description": description}))
        };
        let properties: serde_json::Map<_, _> = args.iter().map(property).collect();
        let required: Vec<_> = args.iter().take(*required).map(|(name, ..)| name).collect();
        let mut parameters = json!({ "properties": properties });
        if !required.is_empty() {
            parameters["required"] = json!(required);
        }
        let mut declaration = json!({
            "name": name, "description": description, "category": category, "effect": effect,
            "parameters": parameters,
        });
        if self.tool().is_repeatable() {
            declaration["idempotent"] = true.into();
        }
        declaration
    }
}

impl Tool {
    /// Returns the length of a result that is passed on as a whole, in bytes; `None` for the usual one.
    pub fn whole_output(&self) -> Option<usize> {
        match self.kind {
            Kind::ReadWorkspace | Kind::WriteWorkspace => Some(workspace::MAX_RESULT),
            Kind::Render(_) => Some(diagram::MAX_RESULT),
            _ => None,
        }
    }

    /// Returns whether a call may be repeated, because it changes nothing.
    pub fn is_repeatable(&self) -> bool {
        matches!(self.kind, Kind::Read(_) | Kind::ReadWorkspace | Kind::Inspect(_))
    }

    /// Returns whether a call fails if its program reports a fault, so that the server sees that what was checked is not
    /// good.
    pub fn is_check(&self) -> bool {
        matches!(self.kind, Kind::Check(_))
    }

    /// Returns the work of a call, and what its process may reach.
    ///
    /// # Errors
    /// Wrong arguments.
    pub fn work(&self, commands: &Commands, args: Value) -> Result<(Work, Reach), ToolError> {
        let reach = |writes, system| Reach { writes, system, ..Reach::default() };
        Ok(match self.kind {
            Kind::Read(_) | Kind::ReadWorkspace => {
                (Work::Tool { name: self.name.to_owned(), args }, reach(false, false))
            }
            Kind::Write(_) | Kind::Render(_) | Kind::WriteWorkspace => {
                (Work::Tool { name: self.name.to_owned(), args }, reach(true, false))
            }
            Kind::Inspect(command) => (Work::Command(command(commands, args)?), reach(false, true)),
            Kind::Run(command) | Kind::Check(command) => {
                (Work::Command(command(commands, args)?), reach(true, true))
            }
        })
    }
}

/// Runs a tool in this process.
///
/// # Errors
/// Wrong arguments, and those of the tool.
pub fn compute(name: &str, args: &Value, root: &Root) -> Result<String, ToolError> {
    match find(name).map(|tool| tool.kind) {
        Some(Kind::Read(run) | Kind::Write(run) | Kind::Render(run)) => run(args.clone(), root),
        Some(Kind::ReadWorkspace | Kind::WriteWorkspace) => workspace::run(name, args.clone(), root),
        _ => Err(ToolError::Other(format!("the runner has no tool {name}"))),
    }
}

/// Reads the arguments of a call; absent ones are an empty object.
fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    Ok(serde_json::from_value(if args.is_null() { json!({}) } else { args })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_a_declaration_with_its_own_name() {
        let names: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
        assert!(names.iter().all(|name| name.starts_with("local_")));
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        let parameters = |name: &str| {
            let tool = TOOLS.iter().find(|tool| tool.name == name).unwrap();
            tool.declaration()["parameters"].clone()
        };
        assert_eq!(parameters("local_read")["required"], json!(["path"]));
        assert_eq!(parameters("local_verify"), json!({"properties": {}}));
    }

    #[test]
    fn a_file_tool_is_for_a_runner_only_if_the_server_says_so() {
        let call = |name: &str, payload| Pending {
            kind: "external".into(),
            name: name.into(),
            args: json!({"path": "a"}),
            payload,
            ..Pending::default()
        };
        let own = call("read_file", json!({"workspace": "runner", "args": {"path": "a"}}));
        let (tool, args) = for_call(&own).unwrap();
        assert_eq!((tool.name, args), ("read_file", &json!({"path": "a"})));
        // The editor that brings this tool answers its calls.
        assert!(for_call(&call("read_file", json!({"path": "a"}))).is_none());
        assert!(for_call(&call("read_file", Value::Null)).is_none());
        // A client's tool may have a parameter `workspace`, and its model may write any arguments.
        for args in [
            json!({"workspace": "runner", "path": "a"}),
            json!({"workspace": "runner", "path": "a", "args": {"workspace": "runner", "path": "a"}}),
        ] {
            let of_client = Pending { args: args.clone(), ..call("write_file", args) };
            assert!(for_call(&of_client).is_none());
        }
        assert_eq!(for_call(&call("local_read", json!({"path": "b"}))).unwrap().1, &json!({"path": "b"}));
        assert!(for_call(&Pending { kind: "approval".into(), ..own }).is_none());
    }

    #[test]
    fn only_tools_that_change_nothing_are_repeatable() {
        for tool in TOOLS {
            assert_eq!(tool.tool().is_repeatable(), tool.category == "read", "{}", tool.name);
            assert_eq!(tool.tool().is_repeatable(), tool.effect == "read_only", "{}", tool.name);
        }
    }
}
