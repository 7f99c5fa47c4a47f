//! What may be done to the list of tasks: pure, so that a change that is refused leaves it as it was.

use super::{Task, TaskStatus, id, text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// Most tasks.
pub const MAX_TASKS: usize = 100;
/// Longest content of a task, in characters.
pub const MAX_CONTENT: usize = 500;
/// Longest part of an id that is made from a content.
const MAX_SLUG: usize = 48;

/// A task as it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
pub struct NewTask {
    /// Its id, to keep one that it has or to choose one; made from the content when absent.
    #[serde(default)]
    pub id: Option<String>,
    /// What is to be done.
    pub content: String,
    /// How far it has come; one task at most is in_progress.
    #[serde(default)]
    pub status: TaskStatus,
    /// What is being done, as shown while it is: "Running tests".
    #[serde(default)]
    pub active_form: Option<String>,
}

/// What is to be another of a task. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
pub struct TaskPatch {
    /// The task.
    pub id: String,
    /// What is to be done.
    #[serde(default)]
    pub content: Option<String>,
    /// How far it has come. What else is in_progress becomes pending when this one is.
    #[serde(default)]
    pub status: Option<TaskStatus>,
    /// What is being done, as shown while it is.
    #[serde(default)]
    pub active_form: Option<String>,
}

/// Why the list stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TaskError {
    /// More than [`MAX_TASKS`].
    #[error("{0} tasks are too many: a list has {MAX_TASKS} at most")]
    TooMany(usize),
    /// Two or more at once.
    #[error("{0} tasks are in_progress: one at most may be")]
    InProgress(usize),
    /// A text that is empty or longer than [`MAX_CONTENT`].
    #[error("the content and active_form of a task have 1 to {MAX_CONTENT} characters")]
    Text,
    /// An id that is none.
    #[error("the id {0:?} is not 1–128 of A–Z a–z 0–9 _ - . ~ : @")]
    Id(String),
    /// A change that changes nothing by what it says.
    #[error("say what is to change: content, status or active_form")]
    Nothing,
    /// There is no such task.
    #[error("there is no task {id:?}; there are: {known}")]
    Unknown {
        /// What was asked for.
        id: String,
        /// The ids that there are.
        known: String,
    },
}

/// How far a list has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskCheck {
    /// All tasks.
    pub total: usize,
    /// Those that are done.
    pub completed: usize,
    /// Those at hand.
    pub in_progress: usize,
    /// Those not begun.
    pub pending: usize,
    /// Those not done.
    pub incomplete: usize,
    /// Whether there is any.
    pub has_tasks: bool,
    /// Whether there is any and all are done.
    pub all_completed: bool,
    /// Those not done, in their order.
    pub incomplete_tasks: Vec<Task>,
}

/// A list of tasks, to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskList(pub Vec<Task>);

impl TaskList {
    /// Puts these in the place of all tasks. A task without an id keeps the one that it had, where its content
    /// is the only one of its kind, and else gets one; of several with the same id the first has it. The same again
    /// changes nothing.
    ///
    /// # Errors
    /// When there are too many, too many at once, or one of them is not fit; the list is as it was then.
    pub fn write(&mut self, new: Vec<NewTask>) -> Result<(), TaskError> {
        if new.len() > MAX_TASKS {
            return Err(TaskError::TooMany(new.len()));
        }
        match new.iter().filter(|task| task.status == TaskStatus::InProgress).count() {
            0 | 1 => {}
            several => return Err(TaskError::InProgress(several)),
        }
        let mut taken = BTreeSet::new();
        let mut tasks = Vec::with_capacity(new.len());
        for task in new {
            // Models give an empty string for nothing.
            let own = task.id.filter(|own| !own.is_empty());
            if let Some(own) = own.as_ref().filter(|own| !id::is_valid(own)) {
                return Err(TaskError::Id(own.clone()));
            }
            let own = own.filter(|own| taken.insert(own.clone())).unwrap_or_default();
            let active_form = task.active_form.filter(|text| !text.is_empty()).map(fit).transpose()?;
            tasks.push(Task { id: own, content: fit(task.content)?, status: task.status, active_form });
        }
        // Ids that are given come first, then those that were there: what is made gives way.
        let only = |tasks: &[Task], content: &str| {
            let mut same = tasks.iter().filter(|task| task.content == content);
            same.next().map(|task| task.id.clone()).filter(|_| same.next().is_none())
        };
        let kept: Vec<_> = tasks
            .iter()
            .map(|task| only(&tasks, &task.content).and_then(|_| only(&self.0, &task.content)))
            .collect();
        for (task, kept) in tasks.iter_mut().zip(kept).filter(|(task, _)| task.id.is_empty()) {
            task.id = kept.filter(|kept| taken.insert(kept.clone())).unwrap_or_default();
        }
        for task in tasks.iter_mut().filter(|task| task.id.is_empty()) {
            task.id = made(&task.content, &taken);
            taken.insert(task.id.clone());
        }
        self.0 = tasks;
        Ok(())
    }

    /// Changes a task. Of all tasks it is the only one in progress when it comes to be.
    ///
    /// # Errors
    /// When there is no such task, nothing to change, or the change is not fit; the list is as it was then.
    pub fn update(&mut self, patch: TaskPatch) -> Result<(), TaskError> {
        let TaskPatch { id, content, status, active_form } = patch;
        let place = self.place(&id)?;
        if content.is_none() && status.is_none() && active_form.is_none() {
            return Err(TaskError::Nothing);
        }
        let content = content.map(fit).transpose()?;
        let active_form = active_form.map(fit).transpose()?;
        for (index, task) in self.0.iter_mut().enumerate() {
            if index != place {
                if status == Some(TaskStatus::InProgress) && task.status == TaskStatus::InProgress {
                    task.status = TaskStatus::Pending;
                }
                continue;
            }
            task.status = status.unwrap_or(task.status);
            if let Some(content) = &content {
                task.content.clone_from(content);
            }
            if active_form.is_some() {
                task.active_form.clone_from(&active_form);
            }
        }
        Ok(())
    }

    /// A task is done.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn complete(&mut self, id: String) -> Result<(), TaskError> {
        self.update(TaskPatch { id, status: Some(TaskStatus::Completed), ..TaskPatch::default() })
    }

    /// How far it has come.
    pub fn check(&self) -> TaskCheck {
        let count = |status| self.0.iter().filter(|task| task.status == status).count();
        let (total, completed) = (self.0.len(), count(TaskStatus::Completed));
        TaskCheck {
            total,
            completed,
            in_progress: count(TaskStatus::InProgress),
            pending: count(TaskStatus::Pending),
            incomplete: total - completed,
            has_tasks: total > 0,
            all_completed: total > 0 && completed == total,
            incomplete_tasks: self
                .0
                .iter()
                .filter(|task| task.status != TaskStatus::Completed)
                .cloned()
                .collect(),
        }
    }

    /// The list for a model, between tags: a task a line. Somebody else's words neither end a line nor open a tag.
    pub fn prompt_text<'a>(tag: &str, tasks: impl IntoIterator<Item = &'a Task>) -> String {
        let mut out = format!("<{tag}>\n");
        for Task { id, content, status, active_form } in tasks {
            let mut line = format!("[{}] {id}: {content}", status.name());
            if let Some(active_form) = active_form {
                line.push_str(&format!(" ({active_form})"));
            }
            for c in line.chars() {
                match c {
                    '<' => out.push_str("&lt;"),
                    c if text::in_line(c) => out.push(c),
                    _ => out.push(' '),
                }
            }
            out.push('\n');
        }
        out.push_str(&format!("</{tag}>"));
        out
    }

    fn place(&self, id: &str) -> Result<usize, TaskError> {
        self.0.iter().position(|task| task.id == id).ok_or_else(|| {
            let known: Vec<&str> = self.0.iter().map(|task| task.id.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            TaskError::Unknown { id: id.chars().take(MAX_CONTENT).collect(), known }
        })
    }
}

/// A text as it is kept.
fn fit(text: String) -> Result<String, TaskError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_CONTENT {
        return Err(TaskError::Text);
    }
    Ok(text.to_owned())
}

/// An id made from a content: `task_write_tests`, and `task_write_tests_2` where that is taken.
fn made(content: &str, taken: &BTreeSet<String>) -> String {
    let mut made = "task".to_owned();
    let words = content.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    for word in words {
        made.push('_');
        made.push_str(&word.to_ascii_lowercase());
    }
    made.truncate("task_".len() + MAX_SLUG);
    let made = made.trim_end_matches('_');
    let numbered = (2..).map(|number| format!("{made}_{number}"));
    let mut ids = std::iter::once(made.to_owned()).chain(numbered);
    // There is always one: fewer are taken than there are numbers.
    ids.find(|id| !taken.contains(id)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
