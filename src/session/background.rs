//! Reads background tasks.

use super::{DocumentKey, Session, decode};
use crate::ports::StoreError;
use crate::types::{BackgroundTask, TaskDetails, TaskView, TurnId};

impl Session {
    /// Returns the details of a background task; `None` if there is no such task.
    ///
    /// # Errors
    /// When the store fails or holds an unreadable document.
    pub fn task_details(&self, id: &TurnId) -> Result<Option<TaskDetails>, StoreError> {
        self.document(&DocumentKey::BackgroundTask(id.clone()))?.as_deref().map(decode).transpose()
    }

    /// Returns the background tasks as clients see them in a list, oldest first: without the replies, which may be long.
    ///
    /// # Errors
    /// When the store fails or holds an unreadable document.
    pub fn background_tasks(&self) -> Result<Vec<TaskView>, StoreError> {
        let tasks = self.state().subagents.tasks.clone();
        let views = tasks.iter().map(|task| self.view_of(task));
        let views = views.filter_map(Result::transpose);
        views.map(|view| view.map(|view| TaskView { reply: None, ..view })).collect()
    }

    /// Returns a background task as clients see it.
    ///
    /// # Errors
    /// When the store fails or holds an unreadable document.
    pub fn background_task(&self, id: &TurnId) -> Result<Option<TaskView>, StoreError> {
        let task = self.state().subagents.get(id).cloned();
        task.map_or(Ok(None), |task| self.view_of(&task))
    }

    fn view_of(&self, task: &BackgroundTask) -> Result<Option<TaskView>, StoreError> {
        let details = self.task_details(&task.id)?;
        Ok(details.map(|details| TaskView::new(task, details)))
    }
}
