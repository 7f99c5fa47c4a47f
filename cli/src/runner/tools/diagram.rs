//! `local_diagram`.

use super::{ToolError, parse};
use crate::runner::root::Root;
use mermaid_rs_renderer::{
    DiagramKind, Graph, LayoutConfig, Theme, compute_layout, parse_mermaid_strict, render_svg,
};
use roxmltree::{Document, Node};
use serde::Deserialize;
use serde_json::Value;

/// Largest picture that is returned, and not written into a file, in bytes.
pub(super) const MAX_RESULT: usize = 500_000;
/// Largest source, in bytes.
const MAX_SOURCE: usize = 100_000;
/// The elements of a picture. None of them runs or loads anything.
const ELEMENTS: [&str; 18] = [
    "circle",
    "defs",
    "ellipse",
    "g",
    "line",
    "linearGradient",
    "marker",
    "path",
    "polygon",
    "polyline",
    "rect",
    "stop",
    "style",
    "svg",
    "symbol",
    "text",
    "title",
    "tspan",
];

#[derive(Deserialize)]
struct Diagram {
    /// Not `source`, which the rules of the server take for a path.
    diagram: String,
    path: Option<String>,
}

pub(super) fn diagram(args: Value, root: &Root) -> Result<String, ToolError> {
    let Diagram { diagram, path } = parse(args)?;
    let svg = render(&diagram)?;
    let Some(path) = path else {
        return match svg.len() {
            0..=MAX_RESULT => Ok(svg),
            length => Err(ToolError::Other(format!(
                "the picture has {length} bytes, and a result at most {MAX_RESULT}; give the path of a file for it"
            ))),
        };
    };
    let path = root.relative(&path)?;
    if path.extension().is_none_or(|extension| extension != "svg") {
        return Err(ToolError::Other(format!("{}: expected a name that ends with .svg", path.display())));
    }
    root.prepare(&path, &svg)?.commit()?;
    Ok(format!("rendered the diagram to {} ({} bytes)", path.display(), svg.len()))
}

fn render(source: &str) -> Result<String, ToolError> {
    if source.len() > MAX_SOURCE {
        return Err(ToolError::Other(format!("the source has more than {MAX_SOURCE} bytes")));
    }
    let failed =
        |why: &dyn ToString| ToolError::Other(format!("cannot render the diagram: {}", why.to_string()));
    let mut graph = parse_mermaid_strict(source).map_err(|error| failed(&error))?.graph;
    if is_empty(&graph) {
        return Err(failed(&"it has no nodes; check the brackets and arrows"));
    }
    // A link of a diagram could run a script in the page that shows the picture.
    graph.node_links.clear();
    // The sandbox hides the fonts of the system, so the widths of texts are estimated.
    let layout = LayoutConfig { fast_text_metrics: true, ..LayoutConfig::default() };
    let theme = Theme::modern();
    let svg = render_svg(&compute_layout(&graph, &theme, &layout), &theme, &layout);
    // The renderer copies some values of the source, such as colors, into attributes as they are.
    let document = Document::parse(&svg).map_err(|error| failed(&error))?;
    match document.root().descendants().find_map(active) {
        Some(what) => Err(failed(&format!("the picture would contain {what}"))),
        None => Ok(svg),
    }
}

/// Names what a node could run or load; `None` if it only shows something.
fn active(node: Node<'_, '_>) -> Option<String> {
    if node.is_pi() {
        return Some("an instruction".to_owned());
    }
    // Styles are the same in capital letters, and with escapes.
    let loads = |text: &str| {
        let text = text.to_lowercase();
        let foreign = text.matches("url(").count() > text.matches("url(#").count();
        foreign || ["@", "\\", "image-set("].iter().any(|way| text.contains(way))
    };
    if node.has_tag_name("style") {
        let texts = node.descendants().filter(|inner| inner.is_text()).filter_map(|inner| inner.text());
        if loads(&texts.collect::<String>()) {
            return Some("a style that loads something".to_owned());
        }
    }
    if node.is_element() && !ELEMENTS.contains(&node.tag_name().name()) {
        return Some(format!("the element {:?}", node.tag_name().name()));
    }
    let is_active = |name: &str, value: &str| {
        let name = name.to_lowercase();
        name.starts_with("on") || name == "href" || loads(value)
    };
    let found = node.attributes().find(|own| is_active(own.name(), own.value()))?;
    Some(format!("the attribute {:?}", found.name()))
}

/// Returns whether the parser has found nothing to draw, which it does not report for these types.
fn is_empty(graph: &Graph) -> bool {
    let has_nodes = matches!(
        graph.kind,
        DiagramKind::Flowchart | DiagramKind::Class | DiagramKind::State | DiagramKind::Er
    );
    has_nodes && graph.nodes.is_empty() && graph.subgraphs.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    #[test]
    fn diagrams_of_several_types_have_their_labels() {
        for (source, labels) in [
            ("flowchart TD\nA[Start] --> B{Good?}\nB -->|yes| C[End]", &["Start", "Good?", "yes"][..]),
            ("%% comment\nsequenceDiagram\nAnn->>Bob: Hello\nBob-->>Ann: Hi", &["Ann", "Hello"]),
            ("classDiagram\nAnimal <|-- Duck\nclass Duck{\n+swim()\n}", &["Animal", "swim"]),
            ("stateDiagram-v2\n[*] --> Still\nStill --> [*]", &["Still"]),
            ("erDiagram\nCUSTOMER ||--o{ ORDER : places", &["CUSTOMER", "places"]),
            (
                "gantt\ntitle Work\ndateFormat YYYY-MM-DD\nsection S\nTask :a1, 2026-01-01, 30d",
                &["Work", "Task"],
            ),
            ("pie title Pets\n\"Dogs\" : 3\n\"Cats\" : 1", &["Pets", "Dogs"]),
            ("mindmap\n  root\n    branch", &["root", "branch"]),
            ("gitGraph\ncommit\nbranch side\ncommit", &["side"]),
        ] {
            let svg = render(source).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            for label in labels {
                assert!(svg.contains(label), "{label} of {source}");
            }
            assert_eq!(render(source).unwrap(), svg, "the same each time");
        }
    }

    #[test]
    fn malformed_sources_are_refused_with_a_reason() {
        for (source, reason) in [
            ("", "header"),
            ("hello world", "header"),
            ("flowchart TD\nA --", "A --"),
            ("flowchart TD\nA[open --> B", "no nodes"),
            ("flowchart TD\nsubgraph one\nA --> B", "unclosed"),
            ("classDiagram", "no nodes"),
        ] {
            let error = render(source).unwrap_err().to_string();
            assert!(error.starts_with("cannot render the diagram: ") && error.contains(reason), "{error}");
        }
        assert!(render(&"x".repeat(MAX_SOURCE + 1)).unwrap_err().to_string().contains("more than"));
    }

    #[test]
    fn texts_and_links_of_a_source_become_no_script() {
        for source in [
            "flowchart TD\nA[\"<script>alert(1)</script>\"] --> B\nclick A href \"javascript:alert(1)\"",
            "flowchart TD\nA[\"<img src=x onerror=alert(1)>\"]",
            "classDiagram\nclass A\nlink A \"javascript:alert(1)\" \"x\"",
            "sequenceDiagram\nparticipant A as <script>x</script>\nA->>A: \" onload=\"alert(1)",
        ] {
            let svg = render(source).unwrap();
            for active in ["<script", "<img", "<a ", "href=", "<foreignObject", " onload=\""] {
                assert!(!svg.contains(active), "{active} in {svg}");
            }
        }
    }

    #[test]
    fn a_picture_that_would_run_or_load_something_is_refused() {
        for (style, what) in [
            ("fill:#f00\" onload=\"alert(1)", "the attribute \"onload\""),
            ("fill:url(https://example.com/x.svg)", "the attribute \"fill\""),
            ("fill:red\"/><script>alert(1)</script><g fill=\"red", "the element \"script\""),
            ("fill:red\" ONLOAD=\"alert(1)", "the attribute \"ONLOAD\""),
            ("fill:red\" style=\"fill:URL(https://example.com/x.svg)", "the attribute \"style\""),
            ("fill:red\" style=\"fill:u\\72l(https://example.com/x.svg)", "the attribute \"style\""),
            (
                "fill:red\"/><style><!-- -->@IMPORT 'https://example.com/a.css'</style><g fill=\"red",
                "a style that loads something",
            ),
        ] {
            let error = render(&format!("flowchart TD\nA\nstyle A {style}")).unwrap_err().to_string();
            assert_eq!(error, format!("cannot render the diagram: the picture would contain {what}"));
        }
        assert!(render("flowchart TD\nA\nstyle A fill:#f00,stroke:blue").is_ok());
    }

    #[test]
    fn a_picture_is_the_result_or_a_file_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let source = "graph LR\nA --> B";
        let svg = diagram(json!({ "diagram": source }), &root).unwrap();
        let said = diagram(json!({ "diagram": source, "path": "docs/a.svg" }), &root).unwrap();
        assert_eq!(said, format!("rendered the diagram to docs/a.svg ({} bytes)", svg.len()));
        assert_eq!(std::fs::read_to_string(folder.path().join("docs/a.svg")).unwrap(), svg);
        for path in ["../a.svg", "a.html", ".git/a.svg"] {
            assert!(diagram(json!({ "diagram": source, "path": path }), &root).is_err(), "{path}");
        }
        assert!(diagram(json!({ "path": "b.svg" }), &root).is_err());
        assert!(!folder.path().join("b.svg").exists());
    }
}
