//! The tasks of the gateway. None of them may exit; if one does, the gateway exits: without its
//! watch it would look healthy, but revoke nothing.

use std::any::Any;
use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

use crate::run::GatewayError;

/// Named tasks. They are cancelled when this is dropped.
#[derive(Default)]
pub(crate) struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Starts a task.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = self.set.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Waits until a task exits, and returns which.
    pub(crate) async fn wait_for_exit(&mut self) -> GatewayError {
        let name = |id| self.names.get(&id).copied().unwrap_or_default();
        match self.set.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => GatewayError::TaskExited { name: name(id) },
            Some(Err(error)) => {
                let name = name(error.id());
                match error.try_into_panic() {
                    Ok(panic) => {
                        GatewayError::TaskPanicked { name, message: panic_message(&*panic) }
                    }
                    Err(_cancelled) => GatewayError::TaskExited { name },
                }
            }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        (None, None) => "no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_reported_with_its_name_and_message() {
        let mut tasks = Tasks::default();
        tasks.spawn("watch", std::future::pending());
        tasks.spawn("proxy", async { panic!("no {}", "port") });
        let text = tasks.wait_for_exit().await.to_string();
        assert_eq!(text, "task \"proxy\" panicked: no port");
    }

    #[tokio::test]
    async fn a_task_that_returns_is_reported_with_its_name() {
        let mut tasks = Tasks::default();
        tasks.spawn("proxy", std::future::pending());
        tasks.spawn("watch", async {});
        let text = tasks.wait_for_exit().await.to_string();
        assert!(text.starts_with("task \"watch\" exited"), "{text}");
    }
}
