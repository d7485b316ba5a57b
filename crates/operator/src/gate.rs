//! Allows writes only while this replica is the leader. The check is in the client, so that no
//! controller can forget it.

use crate::health::{Health, WRITE, WorkGuard};
use crate::lease::Leadership;

/// Starts writes while this replica is the leader, and tracks the running ones. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WriteGate {
    leadership: Leadership,
    health: Health,
}

/// A write was not sent, because this replica is not the leader.
#[derive(Debug, thiserror::Error)]
#[error("nothing was written: this replica is not the leader (any more)")]
pub(crate) struct NotLeading;

impl WriteGate {
    pub(crate) fn new(leadership: Leadership, health: Health) -> WriteGate {
        WriteGate { leadership, health }
    }

    /// Starts a write, which lasts until the returned guard is dropped.
    pub(crate) fn begin_write(&self) -> Result<WorkGuard, NotLeading> {
        // The order matters: a caller that closes the gate and then finds no running write knows
        // that none will start.
        let write = self.health.begin(WRITE);
        if self.leadership.is_leader() { Ok(write) } else { Err(NotLeading) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn no_write_begins_after_the_gate_was_closed() {
        let (leadership, health) = (Leadership::always(), Health::default());
        let gate = WriteGate::new(leadership.clone(), health.clone());
        let before = gate.begin_write().ok();
        assert!(before.is_some());
        leadership.close();
        assert!(gate.begin_write().is_err());
        let no_write = || health.wait_until_none(|name| name == WRITE).now_or_never();
        assert!(no_write().is_none(), "the write that started before is still running");
        drop(before);
        assert!(no_write().is_some());
    }
}
