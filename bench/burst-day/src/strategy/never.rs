//! No nodes but those at home. Jobs that are larger than home never run.

use super::Strategy;
use crate::world::{Change, World};

/// Requests nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Never;

impl Strategy for Never {
    fn name(&self) -> &'static str {
        "never"
    }

    fn changes(&mut self, _: &World) -> Vec<Change> {
        Vec::new()
    }
}
