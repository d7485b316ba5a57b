//! Exponential backoff.

use std::time::Duration;

/// A delay that doubles from `first` up to `last`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    last: Duration,
    next: Duration,
}

impl Backoff {
    /// Delays from `first` to `last`.
    pub const fn new(first: Duration, last: Duration) -> Backoff {
        Backoff { first, last, next: first }
    }

    /// Returns the current delay and doubles it for the next call.
    pub fn next_delay(&mut self) -> Duration {
        let now = self.next;
        self.next = (2 * now).min(self.last);
        now
    }

    /// Starts again with the first delay, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_up_to_its_last_delay_and_can_be_reset() {
        let mut delay = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let waits: Vec<_> = (0..7).map(|_| delay.next_delay().as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000]);
        delay.reset();
        assert_eq!(delay.next_delay().as_millis(), 200);
    }
}
