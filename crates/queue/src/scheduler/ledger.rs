//! The quota of a setup, its usage and its reservations: whether a job fits.

use std::collections::HashMap;
use std::sync::Arc;

use super::namespace::Namespace;
use crate::line::Shape;
use crate::order::Key;
use crate::sum::Sum;
use crate::{Millis, Reason, Resources, Setup};

/// The quota of a setup and its usage.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) setup: Setup,
    /// What admitted jobs use.
    pub(super) used: Sum,
    /// Reservations since the last cycle, in the order of their jobs.
    pub(super) kept: Vec<Kept>,
}

/// Quota that is reserved for a job that does not fit.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) key: Key,
    pub(super) name: Arc<str>,
    pub(super) lets_pass: LetsPass,
}

/// Which of the jobs behind a reservation may still be admitted.
#[derive(Debug)]
pub(super) enum LetsPass {
    Nobody,
    /// Those that fit beside what is `taken`, reserved quota included, or finish by then.
    Beside {
        taken: Sum,
        ends_by: Option<Millis>,
    },
}

impl LetsPass {
    /// Whether a job of this shape finishes before the reserved quota is needed.
    fn in_time(ends_by: Option<Millis>, shape: &Shape, now: Millis) -> bool {
        match (ends_by, shape.max_runtime) {
            (Some(ends_by), Some(runtime)) => now.saturating_add(runtime) <= ends_by,
            _ => false,
        }
    }
}

impl Ledger {
    pub(super) fn new(setup: Setup) -> Ledger {
        Ledger { setup, used: Sum::default(), kept: Vec::new() }
    }

    /// The size at which a job of this shape can be admitted at this position of the order.
    ///
    /// Obstacles that more quota of this queue cannot remove are reported first: such a job
    /// blocks no other.
    ///
    /// # Errors
    /// Why it cannot be admitted.
    pub(super) fn offer(
        &self,
        shape: &Shape,
        key: &Key,
        namespaces: &HashMap<Arc<str>, Namespace>,
        now: Millis,
    ) -> Result<u32, Reason> {
        let Ledger { setup, used, kept } = self;
        let (least, mut most) = shape.sizes(setup);
        if let Some(max_size) = setup.max_size {
            if least > max_size {
                return Err(Reason::TooLarge { size: least, max_size });
            }
            most = most.min(max_size);
        }
        let nothing = Sum::default();
        most = shape.largest(&setup.room, &nothing, (least, most)).map_err(|missing| {
            Reason::ExceedsQuota {
                resource: missing.resource,
                asked: missing.needed,
                room: missing.free,
            }
        })?;
        if let Some(namespace) = shape.namespace.as_ref().and_then(|name| namespaces.get(name)) {
            most = namespace.offer(shape, (least, most))?;
        }
        most = shape.largest(&setup.room, used, (least, most)).map_err(|missing| {
            Reason::WaitingForQuota { missing: missing.amount(), resource: missing.resource }
        })?;
        for Kept { name, lets_pass, .. } in kept.iter().take_while(|kept| kept.key < *key) {
            let behind = || Reason::BehindOthers { job: name.clone() };
            match lets_pass {
                LetsPass::Nobody => return Err(behind()),
                LetsPass::Beside { ends_by, .. } if LetsPass::in_time(*ends_by, shape, now) => {}
                LetsPass::Beside { taken, .. } => {
                    most =
                        shape.largest(&setup.room, taken, (least, most)).map_err(|_| behind())?;
                }
            }
        }
        Ok(most)
    }

    /// Counts the quota that a job of this shape was granted.
    pub(super) fn take(&mut self, shape: &Shape, resources: &Resources, now: Millis) {
        self.used.add(resources);
        for Kept { lets_pass, .. } in &mut self.kept {
            if let LetsPass::Beside { taken, ends_by } = lets_pass
                && !LetsPass::in_time(*ends_by, shape, now)
            {
                taken.add(resources);
            }
        }
    }
}
