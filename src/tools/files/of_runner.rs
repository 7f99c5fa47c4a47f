//! The file tools of a workspace that is the folder of a runner.
//!
//! They keep their names, arguments, effects and results. The calls of paths that the server itself uses
//! ([`layout::is_on_server`]) run here; the others wait for a runner, as calls of external tools do.

use super::MoveFile;
use crate::agent::{DynTool, Tool, ToolContext};
use crate::types::{Invalid, ToolOutcome, ToolSpec, WaitKind, WorkspaceKind, WorkspaceOwner};
use crate::workspace::layout;
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde_json::{Value, json};
use std::rc::Rc;

/// A file tool whose calls wait for a runner, unless their files are on the server.
pub struct OfRunner(Rc<dyn DynTool>);

/// Where the files of a call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Server,
    Runner,
    /// One file is on the server, and the other one in the folder.
    Both,
}

impl Place {
    /// Returns where the files of a call with these arguments are. A call that names none is about the whole folder.
    fn of(tool: &str, args: &Value) -> Self {
        let is_on_server = |name: &str| args.get(name)?.as_str().map(layout::is_on_server);
        let places = match tool {
            MoveFile::NAME => (is_on_server("from"), is_on_server("to")),
            _ => (is_on_server("path"), is_on_server("path")),
        };
        match places {
            (Some(true), Some(true)) => Self::Server,
            (Some(one), Some(other)) if one != other => Self::Both,
            _ => Self::Runner,
        }
    }
}

impl OfRunner {
    /// Lets the calls of a file tool wait for a runner.
    pub fn wrap(tool: Rc<dyn DynTool>) -> Rc<dyn DynTool> {
        Rc::new(Self(tool))
    }

    fn place(&self, args: &Value) -> Place {
        Place::of(&self.0.spec().name, args)
    }
}

impl DynTool for OfRunner {
    fn spec(&self) -> ToolSpec {
        let spec = self.0.spec();
        ToolSpec { suspends: Some(WaitKind::External), client_may_repeat: spec.effect.is_read(), ..spec }
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        let keys = self.0.check(args)?;
        match self.place(args) {
            Place::Both => Err(
                "a file cannot be moved between the server and the folder of the runner; write it to the \
                                new path, and delete the old one"
                    .into(),
            ),
            Place::Server | Place::Runner => Ok(keys),
        }
    }

    fn runs_here(&self, args: &Value, workspace: &WorkspaceOwner) -> bool {
        // An isolated subagent has a workspace of its own, on the server.
        workspace.session.is_some() || self.place(args) == Place::Server
    }

    fn only_returns_answers(&self) -> bool {
        true
    }

    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        _cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        // Tells the runner that the call is about its folder: a client may have a tool with the same name.
        ready(Ok(json!({"workspace": WorkspaceKind::Runner, "args": args}))).boxed_local()
    }

    fn check_answer(&self, _args: &Value, _shown: &Value, answer: &Value) -> Result<(), Invalid> {
        if answer.is_string() { Ok(()) } else { Err("the result of a file tool is a text".into()) }
    }

    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        match cx.answer {
            Some(result) => ready(ToolOutcome::Result { result }).boxed_local(),
            None => self.0.call(args, cx),
        }
    }
}
