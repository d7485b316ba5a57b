//! The quota of a setup, its usage and its reservations: whether a job fits.

use std::collections::HashMap;
use std::sync::Arc;

use super::namespace::Namespace;
use crate::job_class::Shape;
use crate::order::SortKey;
use crate::resource_sum::ResourceSum;
use crate::{Millis, Resources, Setup, WaitReason};

/// The quota of a setup and its usage.
#[derive(Debug)]
pub(super) struct QuotaAccount {
    pub(super) setup: Setup,
    /// What admitted jobs use.
    pub(super) used: ResourceSum,
    /// Reservations that the last cycle made, in the order of their jobs.
    pub(super) reservations: Vec<Reservation>,
}

/// Quota that is reserved for a job that does not fit.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) key: SortKey,
    pub(super) name: Arc<str>,
    pub(super) overtake_policy: OvertakePolicy,
}

/// Which of the jobs behind a reservation may still be admitted.
#[derive(Debug)]
pub(super) enum OvertakePolicy {
    Never,
    /// Those that fit beside what is `taken`, which includes reserved quota, or finish in time.
    IfFits {
        taken: ResourceSum,
        finish_by: Option<Millis>,
    },
}

impl OvertakePolicy {
    /// Whether a job of this shape finishes before the reserved quota is needed.
    fn finishes_in_time(finish_by: Option<Millis>, shape: &Shape, now: Millis) -> bool {
        match (finish_by, shape.max_runtime) {
            (Some(ends_by), Some(runtime)) => now.saturating_add(runtime) <= ends_by,
            _ => false,
        }
    }
}

impl QuotaAccount {
    pub(super) fn new(setup: Setup) -> QuotaAccount {
        QuotaAccount { setup, used: ResourceSum::default(), reservations: Vec::new() }
    }

    /// The size at which a job of this shape can be admitted at this position of the order.
    ///
    /// Obstacles that free quota of this queue cannot remove are reported first: a job with such an
    /// obstacle blocks no other.
    ///
    /// # Errors
    /// Why it cannot be admitted.
    pub(super) fn admissible_size(
        &self,
        shape: &Shape,
        key: &SortKey,
        namespaces: &HashMap<Arc<str>, Namespace>,
        now: Millis,
    ) -> Result<u32, WaitReason> {
        let QuotaAccount { setup, used, reservations } = self;
        let (least, mut most) = shape.sizes(setup);
        if let Some(max_size) = setup.max_size {
            if least > max_size {
                return Err(WaitReason::TooLarge { size: least, max_size });
            }
            most = most.min(max_size);
        }
        let nothing = ResourceSum::default();
        most = shape.largest_fit(&setup.quota, &nothing, (least, most)).map_err(|missing| {
            WaitReason::ExceedsQuota {
                resource: missing.resource,
                requested: missing.needed,
                quota: missing.free,
            }
        })?;
        if let Some(namespace) = shape.namespace.as_ref().and_then(|name| namespaces.get(name)) {
            most = namespace.admissible_size(shape, (least, most))?;
        }
        most = shape.largest_fit(&setup.quota, used, (least, most)).map_err(|missing| {
            WaitReason::WaitingForQuota { missing: missing.amount(), resource: missing.resource }
        })?;
        for Reservation { name, overtake_policy, .. } in
            reservations.iter().take_while(|kept| kept.key < *key)
        {
            let behind = || WaitReason::BehindOthers { job: name.clone() };
            match overtake_policy {
                OvertakePolicy::Never => return Err(behind()),
                OvertakePolicy::IfFits { finish_by: ends_by, .. }
                    if OvertakePolicy::finishes_in_time(*ends_by, shape, now) => {}
                OvertakePolicy::IfFits { taken, .. } => {
                    most = shape
                        .largest_fit(&setup.quota, taken, (least, most))
                        .map_err(|_| behind())?;
                }
            }
        }
        Ok(most)
    }

    /// Counts the quota that a job of this shape was granted.
    pub(super) fn charge(&mut self, shape: &Shape, resources: &Resources, now: Millis) {
        self.used.add(resources);
        for Reservation { overtake_policy: lets_pass, .. } in &mut self.reservations {
            if let OvertakePolicy::IfFits { taken, finish_by: ends_by } = lets_pass
                && !OvertakePolicy::finishes_in_time(*ends_by, shape, now)
            {
                taken.add(resources);
            }
        }
    }
}
