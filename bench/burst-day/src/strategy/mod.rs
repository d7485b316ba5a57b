//! When nodes are requested: never, for every job, or by a policy.

mod always;
mod never;
mod policy;

pub use always::Always;
pub use never::Never;
pub use policy::{POLICY_YAML, Policy, parse_policy};

use crate::world::{Change, World};

/// A way to request nodes and to give them back.
pub trait Strategy {
    /// Its name.
    fn name(&self) -> &'static str;

    /// What to change now. It is asked after every event.
    fn changes(&mut self, world: &World) -> Vec<Change>;

    /// When to ask it at the latest.
    fn wake(&self) -> Option<u64> {
        None
    }
}

/// All strategies, as they are before a day.
pub fn all() -> [Box<dyn Strategy>; 3] {
    [Box::new(Never), Box::<Always>::default(), Box::<Policy>::default()]
}
