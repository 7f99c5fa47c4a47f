//! Diagrams: the check of their source, and how far their rendering is.

use crate::types::ToolOutcome;
use serde_json::{Value, json};

/// The types of diagrams, without what follows a hyphen, such as `-beta`.
const TYPES: [&str; 29] = [
    "architecture",
    "block",
    "C4Component",
    "C4Container",
    "C4Context",
    "C4Deployment",
    "C4Dynamic",
    "classDiagram",
    "erDiagram",
    "flowchart",
    "gantt",
    "gitGraph",
    "graph",
    "journey",
    "kanban",
    "mindmap",
    "packet",
    "pie",
    "quadrantChart",
    "radar",
    "requirementDiagram",
    "sankey",
    "sequenceDiagram",
    "stateDiagram",
    "timeline",
    "treemap",
    "venn",
    "xychart",
    "zenuml",
];

/// Returns whether a text begins with a type of diagram of Mermaid, after comments and front matter.
pub fn is_mermaid(text: &str) -> bool {
    let is_content = |line: &&str| !line.is_empty() && !line.starts_with("%%");
    let mut lines = text.lines().map(str::trim).filter(is_content);
    let mut first = lines.next();
    if first == Some("---") {
        first = lines.skip_while(|line| *line != "---").nth(1);
    }
    let word = first.and_then(|line| line.split(|c: char| !c.is_ascii_alphanumeric()).next());
    word.is_some_and(|word| TYPES.contains(&word))
}

/// How far the rendering of a diagram is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drawing {
    /// Nothing has begun.
    None,
    /// A call renders or stores it.
    Running,
    /// These arguments store it.
    Rendered(Value),
    /// It is in the workspace.
    Stored,
    /// It was not rendered, or could not be stored, for this reason.
    Failed(String),
}

impl Drawing {
    /// Reads what the runner has rendered. `output` is the outcome as text.
    pub(super) fn of(outcome: &ToolOutcome, output: String) -> Self {
        let (start, args) = match outcome {
            ToolOutcome::Result { result } => (result.as_str(), json!({ "content": result })),
            ToolOutcome::Artifact { result } => {
                (Some(result.preview.as_str()), json!({ "artifact": result.r#ref }))
            }
            _ => return Self::Failed(output),
        };
        match start {
            Some(start) if start.starts_with("<svg") => Self::Rendered(args),
            _ => Self::Failed("the runner returned no SVG".to_owned()),
        }
    }
}
