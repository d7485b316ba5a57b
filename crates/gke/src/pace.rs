//! How often something is asked again, and how long one attempt may take.

use std::time::Duration;

use crate::trouble::Trouble;

/// How long one attempt may take: some requests, which Google and an API server give up after a minute each.
const ATTEMPT_TIME: Duration = Duration::from_secs(120);

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

/// Makes an attempt. One that takes too long is as good as one whose answer is lost: a connection that is
/// cut without a word, of which there are some on the way to a new server, would be waited for until the
/// deadline of the Job.
pub(crate) async fn in_time<T>(
    attempt: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let late = || format!("there is no answer within {} s", ATTEMPT_TIME.as_secs());
    let attempt = tokio::time::timeout(ATTEMPT_TIME, attempt).await;
    attempt.unwrap_or_else(|_elapsed| Err(Trouble::Passing(late())))
}
