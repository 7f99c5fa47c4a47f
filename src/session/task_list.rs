//! Changes to the task list. A rejected change leaves the list unchanged.

use crate::types::{Task, TaskStatus, id, text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// Maximum number of tasks.
pub const MAX_TASKS: usize = 100;
/// Maximum length of a task's content, in characters.
pub const MAX_CONTENT: usize = 500;
/// Maximum length of the part of an id that is derived from the content.
const MAX_SLUG: usize = 48;

/// A task of a new list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
pub struct NewTask {
    /// The id, to keep or choose one; derived from the content if absent.
    #[serde(default)]
    pub id: Option<String>,
    /// What to do.
    pub content: String,
    /// The status; at most one task may be in_progress.
    #[serde(default)]
    pub status: TaskStatus,
    /// The text to show while the task is in progress, such as "Running tests".
    #[serde(default)]
    pub active_form: Option<String>,
}

/// Changes to one task. Absent fields keep their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
pub struct TaskPatch {
    /// The id of the task to change.
    pub id: String,
    /// What to do.
    #[serde(default)]
    pub content: Option<String>,
    /// The status. Setting it to in_progress sets any other task that is in_progress to pending.
    #[serde(default)]
    pub status: Option<TaskStatus>,
    /// The text to show while the task is in progress.
    #[serde(default)]
    pub active_form: Option<String>,
}

/// Why a change to the list was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TaskError {
    /// More than [`MAX_TASKS`] tasks.
    #[error("too many tasks: {0}; a list may have at most {MAX_TASKS}")]
    TooMany(usize),
    /// More than one task in progress.
    #[error("{0} tasks are in_progress; at most one may be")]
    InProgress(usize),
    /// An empty text, or one longer than [`MAX_CONTENT`].
    #[error("content and active_form must have 1 to {MAX_CONTENT} characters")]
    Text,
    /// An invalid id.
    #[error("the id {0:?} must be 1–128 characters of A–Z a–z 0–9 _ - . ~ : @")]
    Id(String),
    /// A change without any field.
    #[error("nothing to change: set content, status, or active_form")]
    Nothing,
    /// The task does not exist.
    #[error("unknown task {id:?}; existing tasks: {known}")]
    Unknown {
        /// The requested id.
        id: String,
        /// The existing ids.
        known: String,
    },
}

/// A count of the tasks by status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskCheck {
    /// Number of tasks.
    pub total: usize,
    /// Number of completed tasks.
    pub completed: usize,
    /// Number of tasks in progress.
    pub in_progress: usize,
    /// Number of tasks not started.
    pub pending: usize,
    /// Number of tasks not completed.
    pub incomplete: usize,
    /// Whether there are any tasks.
    pub has_tasks: bool,
    /// Whether there are tasks, all of them completed.
    pub all_completed: bool,
    /// The tasks not completed, in order.
    pub incomplete_tasks: Vec<Task>,
}

/// The task list, with the operations on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskList(pub Vec<Task>);

impl TaskList {
    /// Replaces all tasks. A task without an id keeps its previous id if its content is unique, before and
    /// after; otherwise it gets a new one. Of several tasks with the same id, the first keeps it. Writing the
    /// same list twice changes nothing.
    ///
    /// # Errors
    /// There are too many tasks, too many in progress, or an invalid task. The list is unchanged then.
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
            // Models send an empty string for an absent id.
            let own = task.id.filter(|own| !own.is_empty());
            if let Some(own) = own.as_ref().filter(|own| !id::is_valid(own)) {
                return Err(TaskError::Id(own.clone()));
            }
            let own = own.filter(|own| taken.insert(own.clone())).unwrap_or_default();
            let active_form = task.active_form.filter(|text| !text.is_empty()).map(fit).transpose()?;
            tasks.push(Task { id: own, content: fit(task.content)?, status: task.status, active_form });
        }
        // Given ids take precedence over previous ones, and both over new ones.
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
            task.id = unused_id(&task.content, &taken);
            taken.insert(task.id.clone());
        }
        self.0 = tasks;
        Ok(())
    }

    /// Changes one task. Setting it to in progress ends the progress of any other task.
    ///
    /// # Errors
    /// The task does not exist, the patch is empty, or a field is invalid. The list is unchanged then.
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

    /// Marks a task as completed.
    ///
    /// # Errors
    /// The task does not exist.
    pub fn complete(&mut self, id: String) -> Result<(), TaskError> {
        self.update(TaskPatch { id, status: Some(TaskStatus::Completed), ..TaskPatch::default() })
    }

    /// Counts the tasks by status.
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

    /// Renders the list for a model: one line per task, between tags. Text of a task can neither end its line
    /// nor open a tag.
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
                    c if text::is_inline(c) => out.push(c),
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

/// Trims a text and checks its length.
fn fit(text: String) -> Result<String, TaskError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_CONTENT {
        return Err(TaskError::Text);
    }
    Ok(text.to_owned())
}

/// Derives an unused id from a content: `task_write_tests`, or `task_write_tests_2` if that is taken.
fn unused_id(content: &str, taken: &BTreeSet<String>) -> String {
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
    // The iterator is infinite and `taken` is finite, so an unused id is always found.
    ids.find(|id| !taken.contains(id)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
