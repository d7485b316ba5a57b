//! The tasks of a program. None of them may exit; if one does, the program exits: without one of its
//! watches it would look healthy but do only half of its work.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

/// Named tasks. They are cancelled when this is dropped.
#[derive(Default)]
pub struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

/// A task that should run forever has exited.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TaskExited {
    /// It panicked.
    #[error("task {name:?} panicked: {message}")]
    Panicked {
        /// The name of the task.
        name: &'static str,
        /// The panic message.
        message: String,
    },
    /// It returned.
    #[error("task {name:?} exited unexpectedly, which is a bug")]
    Returned {
        /// The name of the task.
        name: &'static str,
    },
}

impl Tasks {
    /// Starts a task.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Waits until a task exits, and returns which.
    pub async fn wait_for_exit(&mut self) -> TaskExited {
        let name = |id| self.names.get(&id).copied().unwrap_or_default();
        match self.set.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => TaskExited::Returned { name: name(id) },
            Some(Err(error)) => {
                let name = name(error.id());
                match error.try_into_panic() {
                    Ok(panic) => TaskExited::Panicked { name, message: panic_message(&*panic) },
                    Err(_cancelled) => TaskExited::Returned { name },
                }
            }
        }
    }

    /// Cancels all tasks at their next `await`.
    pub fn cancel(&mut self) {
        self.set.abort_all();
    }
}

thread_local! {
    /// The location of the last panic on this thread.
    static LAST_PANIC: Cell<Option<String>> = const { Cell::new(None) };
}

/// Installs a panic hook that prints nothing and remembers the location, so that the code that
/// catches the panic can report it. Otherwise an object whose reconciliation panics would print a
/// message at every retry. For a program that catches every panic, or exits with its message.
pub fn report_panics_where_caught() {
    std::panic::set_hook(Box::new(|panic| {
        LAST_PANIC.set(panic.location().map(ToString::to_string));
    }));
}

/// The message and location of a panic that was caught on this thread.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => *text,
        (_, Some(text)) => text,
        (None, None) => "no message",
    };
    match LAST_PANIC.take() {
        Some(place) => format!("{text} (at {place})"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_reported_with_its_name_and_message() {
        let mut tasks = Tasks::default();
        tasks.spawn("watch of Jobs", std::future::pending());
        tasks.spawn("scheduler", async { panic!("no {}", "quota") });
        let message = "no quota".to_owned();
        assert_eq!(
            tasks.wait_for_exit().await,
            TaskExited::Panicked { name: "scheduler", message }
        );
    }

    #[tokio::test]
    async fn a_task_that_returns_is_reported_with_its_name() {
        let mut tasks = Tasks::default();
        tasks.spawn("scheduler", std::future::pending());
        tasks.spawn("watch of Jobs", async {});
        let exited = tasks.wait_for_exit().await;
        assert_eq!(exited, TaskExited::Returned { name: "watch of Jobs" });
    }
}
