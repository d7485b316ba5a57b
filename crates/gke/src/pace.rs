//! How often something is asked again.

use std::time::Duration;

/// Pauses that grow from one to the next, up to a limit.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The first pause.
    pub first: Duration,
    /// The longest one.
    pub longest: Duration,
}

impl Default for Pace {
    /// A cluster takes some minutes, and Google allows many more requests a minute than these.
    fn default() -> Pace {
        Pace { first: Duration::from_secs(1), longest: Duration::from_secs(20) }
    }
}

impl Pace {
    /// Waits, and returns the pace for the next time.
    pub(crate) async fn wait(self) -> Pace {
        tokio::time::sleep(self.first).await;
        Pace { first: (self.first * 3 / 2).min(self.longest), longest: self.longest }
    }
}
