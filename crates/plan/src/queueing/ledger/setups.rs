//! Setups, and what reading them depends on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use flux_operator_api::FluxSetup;
use flux_operator_queue::{NamespaceQuota, Resources, Setup, SetupName};

use super::{Guard, Ledger, setup_name};
use crate::queueing::setup::{self, SetupContext};

impl<G: Guard> Ledger<G> {
    /// Adds or updates a setup. Returns whether anything relevant has changed.
    pub fn put_setup(&mut self, setup: &FluxSetup) -> bool {
        let name = setup_name(setup);
        let relevant_fields = |setup: &FluxSetup| {
            let metadata = &setup.metadata;
            (metadata.uid.clone(), metadata.generation, metadata.deletion_timestamp.is_some())
        };
        let before = self.setups.get(&name);
        if before.is_some_and(|before| relevant_fields(before) == relevant_fields(setup)) {
            return false;
        }
        self.setups.insert(name, Arc::new(setup.clone()));
        self.is_outdated = true;
        true
    }

    /// Removes a setup.
    pub fn remove_setup(&mut self, name: &SetupName) {
        self.is_outdated |= self.setups.remove(name).is_some();
    }

    /// Removes all setups except for these.
    pub fn retain_setups(&mut self, kept: &HashSet<SetupName>) {
        let deleted: Vec<SetupName> =
            self.setups.keys().filter(|name| !kept.contains(name)).cloned().collect();
        deleted.iter().for_each(|name| self.remove_setup(name));
    }

    /// Sets the labels of a namespace; None if it was deleted.
    pub fn put_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        let before = match labels.clone() {
            Some(labels) => self.namespaces.insert(name.into(), labels),
            None => self.namespaces.remove(name),
        };
        self.is_outdated |= before != labels;
    }

    /// Sets what the ResourceQuotas of a namespace leave.
    pub fn put_namespace_quota(&mut self, namespace: &str, quota: NamespaceQuota) {
        self.scheduler.put_namespace_quota(namespace, quota);
    }

    /// Sets the capacity of nodes, for the setups that take their quota from it.
    pub fn put_node_capacity(&mut self, nodes: HashMap<SetupName, Resources>) {
        self.is_outdated |= self.nodes != nodes;
        self.nodes = nodes;
    }

    /// Reads all setups again if anything they depend on has changed; all, because each may
    /// replace another. A cycle begins with this. Returns the setups that can no longer be
    /// read, each with the message of the panic.
    pub fn read_setups(&mut self) -> Vec<(SetupName, String)> {
        if !std::mem::take(&mut self.is_outdated) {
            return Vec::new();
        }
        let mut unreadable = Vec::new();
        let mut read = BTreeMap::new();
        for (name, setup) in &self.setups {
            let context = SetupContext {
                operator_namespace: &self.operator_namespace,
                namespaces: &self.namespaces,
                node_capacity: self.nodes.get(name),
            };
            let before = self.rules.get(name);
            let now = match self.guard.read(&setup.metadata, || setup::read(setup, context)) {
                Ok(now) => now,
                Err(panic) => {
                    let now = setup::panicked_setup(setup, &panic);
                    if before.and_then(|before| before.problem.as_ref()) != now.problem.as_ref() {
                        unreadable.push((name.clone(), panic));
                    }
                    now
                }
            };
            if before != Some(&now) {
                self.scheduler.put_setup(now.clone());
            }
            read.insert(name.clone(), now);
        }
        for deleted in self.rules.keys().filter(|name| !read.contains_key(name)) {
            self.scheduler.remove_setup(deleted);
        }
        self.rules = read;
        self.was_reread = true;
        unreadable
    }

    /// All setups.
    pub fn setups(&self) -> impl Iterator<Item = (&SetupName, &Arc<FluxSetup>)> {
        self.setups.iter()
    }

    /// A setup as the scheduler has it.
    pub fn setup_rules(&self, name: &SetupName) -> Option<&Setup> {
        self.rules.get(name)
    }
}
