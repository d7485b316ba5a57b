//! The gate that all writes of the leader pass: open while this replica leads. It is in the
//! client, so that no controller can forget to ask.

use crate::health::{Health, UnderWay, WRITE};
use crate::lease::Leadership;

/// Lets writes begin while this replica leads, and shows those under way. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    leadership: Leadership,
    health: Health,
}

/// A write was not sent, because this replica does not lead.
#[derive(Debug, thiserror::Error)]
#[error("nothing was written, because this replica does not lead (any more)")]
pub(crate) struct NotLeading;

impl Gate {
    pub(crate) fn new(leadership: Leadership, health: Health) -> Gate {
        Gate { leadership, health }
    }

    /// Begins a write, which lasts until the result is dropped.
    pub(crate) fn begin_write(&self) -> Result<UnderWay, NotLeading> {
        // In this order: whoever closes the gate and then finds no write under way knows that
        // none will come.
        let write = self.health.begin(WRITE);
        if self.leadership.leads() { Ok(write) } else { Err(NotLeading) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn no_write_begins_after_the_gate_was_closed() {
        let (leadership, health) = (Leadership::always(), Health::default());
        let gate = Gate::new(leadership.clone(), health.clone());
        let before = gate.begin_write().ok();
        assert!(before.is_some());
        leadership.close();
        assert!(gate.begin_write().is_err());
        let no_write = || health.until_none(|name| name == WRITE).now_or_never();
        assert!(no_write().is_none(), "the one that began before is still under way");
        drop(before);
        assert!(no_write().is_some());
    }
}
