//! How often something is asked again, and how long one attempt may take.

use std::time::Duration;

use crate::trouble::{Failure, Trouble};

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
    async fn wait(self) -> Pace {
        tokio::time::sleep(self.first).await;
        Pace { first: (self.first * 3 / 2).min(self.longest), longest: self.longest }
    }
}

/// Makes attempts until one returns a value or fails for good. Between two of them there is a pause. Each
/// attempt has to start from what the servers answer: one that takes too long is cut off anywhere.
pub(crate) async fn until_done<T>(
    pace: Pace,
    mut attempt: impl AsyncFnMut() -> Result<Option<T>, Trouble>,
) -> Result<T, Failure> {
    let mut now = pace;
    loop {
        match in_time(attempt()).await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => {}
            Err(Trouble::Final(failure)) => return Err(failure),
            Err(Trouble::Passing(why)) => tracing::warn!("{why}; it is tried again"),
        }
        now = now.wait().await;
    }
}

/// Makes an attempt. One that takes too long is as good as one whose answer is lost: a connection that is
/// cut without a word, of which there are some on the way to a new server, would be waited for until the
/// deadline of the Job.
async fn in_time<T>(attempt: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let late = || format!("there is no answer within {} s", ATTEMPT_TIME.as_secs());
    let attempt = tokio::time::timeout(ATTEMPT_TIME, attempt).await;
    attempt.unwrap_or_else(|_elapsed| Err(Trouble::Passing(late())))
}
