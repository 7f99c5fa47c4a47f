//! The report of a run: what was asked, done, changed, verified, and is left. It follows from the outcomes alone.

use super::drawing::Drawing;
use super::fold::{Check, Run, StepState, StepStatus, excerpt};
use super::plan::{PlanSource, StepType};

/// Longest goal in the report, in characters.
const MAX_GOAL: usize = 20_000;

impl Run {
    /// Writes the report.
    pub fn report(&self) -> String {
        let status = match self.failure() {
            Some(error) => format!("Failed: {}", error.message),
            None if self.is_canceled() => "Canceled.".to_owned(),
            None if self.is_complete() => "Succeeded.".to_owned(),
            None => "Not finished.".to_owned(),
        };
        let mut text = format!("# Report\n\n{status}\n\n## Asked\n\n{}\n", excerpt(&self.goal, MAX_GOAL));
        if let Some(spec) = &self.spec {
            text.push_str(&format!("\nSpec: {} (SHA-256 {})\n", spec.name, spec.hash));
        }
        if self.source == Some(PlanSource::Fallback) {
            text.push_str("\nThe model wrote no valid plan, so a default one was used.\n");
        }
        let of = |is: fn(&StepState) -> bool| self.steps.iter().filter(move |own| is(own));
        let done: Vec<_> = of(|own| own.status == StepStatus::Succeeded).map(line).collect();
        section(&mut text, "Done", &done);
        let changed: Vec<_> =
            of(|own| own.status == StepStatus::Succeeded).filter_map(|own| self.change(own)).collect();
        section(&mut text, "Changed", &changed);
        let verified = match &self.check {
            Check::Passed if self.repairs.0 > 0 => format!("Passed, after {} repairs.", self.repairs.0),
            Check::Passed => "Passed.".to_owned(),
            Check::Failed(output) => format!("Failed:\n\n{}", fenced(&excerpt(output, 4_000))),
            Check::Skipped(reason) => format!("Not verified: {reason}"),
            Check::None => "Not verified.".to_owned(),
        };
        text.push_str(&format!("\n## Verified\n\n{verified}\n"));
        let left: Vec<_> = of(|own| own.status != StepStatus::Succeeded).map(line).collect();
        section(&mut text, "Left", &left);
        text
    }

    /// Returns whether no step is left to do, and no call is on its way.
    fn is_complete(&self) -> bool {
        self.source.is_some()
            && !self.is_working()
            && self.steps.iter().all(|own| own.status != StepStatus::Pending)
    }

    /// Describes what a step has changed.
    fn change(&self, own: &StepState) -> Option<String> {
        let step = &own.step;
        Some(match (step.kind, step.file()) {
            (_, Some(name)) => {
                let drawing = match &own.drawing {
                    Drawing::Stored => format!(", rendered as `{}`", step.drawing()),
                    Drawing::Failed(why) => format!(", not rendered: {}", why.replace('\n', " ")),
                    Drawing::None | Drawing::Running | Drawing::Rendered(_) => String::new(),
                };
                format!("- `{}` in the workspace{drawing}", Self::path(&self.id, &name))
            }
            (StepType::Patch, _) => match (&step.path, &step.patch) {
                (Some(path), None) => format!("- `{path}`"),
                (_, patch) => {
                    let lines = patch.as_deref().unwrap_or_default().lines();
                    let files = lines.filter_map(|line| line.strip_prefix("+++ "));
                    let files = files.map(|file| file.strip_prefix("b/").unwrap_or(file));
                    let files: Vec<_> = files.map(|file| format!("`{file}`")).collect();
                    format!("- {}", files.join(", "))
                }
            },
            (StepType::Command, _) => format!("- what the command of the step {} has changed", step.id),
            (StepType::Agent, _) => format!("- what the subagent of the step {} has changed", step.id),
            _ => return None,
        })
    }
}

fn line(own: &StepState) -> String {
    let step = &own.step;
    let title = if step.title.is_empty() { &step.id } else { &step.title };
    let what = match (&step.command, step.kind) {
        (Some(command), StepType::Command) => format!(": `{}`", command.replace(['`', '\n'], " ")),
        _ => String::new(),
    };
    let why = own.error.as_ref().map(|error| format!(" ({})", error.replace('\n', " "))).unwrap_or_default();
    let repair = if own.repair > 0 { " [repair]" } else { "" };
    format!("- {} — {title}{what}{repair}{why}", step.id)
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    let lines = if lines.is_empty() { "Nothing.".to_owned() } else { lines.join("\n") };
    text.push_str(&format!("\n## {title}\n\n{lines}\n"));
}

/// Indents a text, so that nothing in it ends the block.
fn fenced(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
