//! When nodes have been missing for long enough to be requested.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::time::seconds_after;
use crate::{Memory, PolicyState};

/// Since when nodes have been missing, and until when policies wait with their requests.
pub(crate) struct Stabilization<'a> {
    policies: &'a [PolicyState],
    memory: &'a Memory,
    now: Timestamp,
    /// For [`Memory::missing_since`] of this decision.
    pub(crate) missing_since: BTreeMap<String, Timestamp>,
    /// For each policy: until when it waits with its requests.
    pub(crate) until: Vec<Option<Timestamp>>,
}

impl<'a> Stabilization<'a> {
    pub(crate) fn new(policies: &'a [PolicyState], memory: &'a Memory, now: Timestamp) -> Self {
        let until = vec![None; policies.len()];
        Stabilization { policies, memory, now, missing_since: BTreeMap::new(), until }
    }

    /// Whether nodes that a policy requests have been missing for long enough.
    pub(crate) fn is_over(&mut self, policy: usize) -> bool {
        let PolicyState { name, spec, .. } = &self.policies[policy];
        let since = self.memory.missing_since.get(name).copied();
        let since = since.unwrap_or(self.now).min(self.now);
        self.missing_since.insert(name.clone(), since);
        let until = seconds_after(since, spec.when.stabilization_seconds());
        if self.now < until {
            self.until[policy] = Some(until);
        }
        self.now >= until
    }
}
