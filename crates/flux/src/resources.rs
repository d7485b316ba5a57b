//! Resource sets: R, the JSON that lists the cores and GPUs of each rank and host.
//! Follows Flux RFC 20, version 1.
//!
//! R is the file at `resource.path`, the allocation of a job, and the output of `flux R encode`. A
//! [`ResourceSet`] has been checked: its ranks and hosts match, and its times and properties are
//! valid. Unknown keys, such as those of a scheduler, are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::hostlist::{HostList, HostListError};
use crate::idset::IdSet;

/// The version of R that this module supports.
const VERSION: u64 = 1;

/// Characters that RFC 20 does not allow in property names.
const FORBIDDEN_IN_PROPERTIES: [char; 9] = ['!', '&', '\'', '"', '^', '`', '|', '(', ')'];

/// A checked resource set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct ResourceSet {
    document: Document,
    // Computed once from the document's entries, because they are used often.
    ranks: IdSet,
    hosts: HostList,
}

/// R as it is serialized.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Document {
    version: u64,
    execution: Execution,
    /// `scheduling`, and unknown keys.
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The fields are in the order in which Flux prints the keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Execution {
    #[serde(rename = "R_lite")]
    r_lite: Vec<RLiteEntry>,
    /// Seconds since the Unix epoch; 0 if not set.
    #[serde(default)]
    starttime: f64,
    #[serde(default)]
    expiration: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nslots: Option<u64>,
    nodelist: Vec<HostList>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<String, IdSet>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Some ranks, and the resources of each of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RLiteEntry {
    rank: IdSet,
    children: Children,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Children {
    core: IdSet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu: Option<IdSet>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Why a text is not R.
#[derive(Debug, thiserror::Error)]
#[error("failed to parse R")]
pub struct ResourceSetParseError {
    source: serde_json::Error,
}

/// Why a resource set is not valid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ResourceSetError {
    /// Not version 1.
    #[error("R has version {version}, only version {VERSION} is supported")]
    Version {
        /// The version found.
        version: u64,
    },
    /// No ranks at all.
    #[error("R has no ranks")]
    Empty,
    /// The numbers of ranks and hosts differ.
    #[error("R has {ranks} ranks but {hosts} hosts")]
    Hosts {
        /// The number of different ranks.
        ranks: u64,
        /// The number of hosts.
        hosts: usize,
    },
    /// The node list is too long.
    #[error("R has an invalid node list")]
    NodeList {
        /// What is wrong with it.
        source: HostListError,
    },
    /// An allocation of no slots.
    #[error("R has 0 slots")]
    Slots,
    /// A negative time, or an expiration that is not after the start.
    #[error("R has an invalid starttime {starttime} or expiration {expiration}")]
    Times {
        /// Seconds since the Unix epoch.
        starttime: f64,
        /// Seconds since the Unix epoch.
        expiration: f64,
    },
    /// A property name that is empty, or has a character that RFC 20 does not allow.
    #[error("property {name:?} is empty or has one of the characters ! & ' \" ^ ` | ( )")]
    PropertyName {
        /// The name.
        name: String,
    },
    /// A property of ranks that R does not have.
    #[error("property {name:?} is set on ranks {ranks}, which R does not have")]
    PropertyRanks {
        /// The name.
        name: String,
        /// The ranks that are missing.
        ranks: IdSet,
    },
}

impl ResourceSet {
    /// The resources of an instance whose ranks 0, 1, .. are `hosts`, each with the same cores and
    /// GPUs, numbered from 0. Fails if there are no hosts.
    pub fn new(hosts: &HostList, cores: NonZeroU32, gpus: u32) -> Result<Self, ResourceSetError> {
        let count = u32::try_from(hosts.len()).expect("a host list has at most MAX_HOSTS hosts");
        let entry = RLiteEntry {
            rank: IdSet::first_n(count),
            children: Children {
                core: IdSet::first_n(cores.get()),
                gpu: (gpus > 0).then(|| IdSet::first_n(gpus)),
                other: Map::new(),
            },
            other: Map::new(),
        };
        Self::try_from(Document {
            version: VERSION,
            execution: Execution {
                r_lite: vec![entry],
                starttime: 0.0,
                expiration: 0.0,
                nslots: None,
                nodelist: vec![hosts.clone()],
                properties: BTreeMap::new(),
                other: Map::new(),
            },
            other: Map::new(),
        })
    }

    /// Parses and checks R.
    pub fn parse(text: &str) -> Result<Self, ResourceSetParseError> {
        serde_json::from_str(text).map_err(|source| ResourceSetParseError { source })
    }

    /// The same resources with a property on these ranks, replacing its previous ranks.
    pub fn with_property(mut self, name: &str, ranks: IdSet) -> Result<Self, ResourceSetError> {
        check_property(name, &ranks, &self.ranks)?;
        let properties = &mut self.document.execution.properties;
        properties.insert(name.to_owned(), ranks);
        Ok(self)
    }

    /// All ranks.
    pub fn ranks(&self) -> &IdSet {
        &self.ranks
    }

    /// The hosts, in rank order.
    pub fn hosts(&self) -> &HostList {
        &self.hosts
    }

    /// The host of `rank`.
    pub fn host(&self, rank: u32) -> Option<String> {
        let position = self.ranks.position(rank)?;
        self.hosts.nth(usize::try_from(position).ok()?)
    }

    /// The number of cores on all ranks together.
    pub fn core_count(&self) -> u64 {
        self.count(|children| Some(&children.core))
    }

    /// The number of GPUs on all ranks together.
    pub fn gpu_count(&self) -> u64 {
        self.count(|children| children.gpu.as_ref())
    }

    /// How many cores and GPUs a rank has.
    pub fn size_of(&self, rank: u32) -> Option<(u64, u64)> {
        let entries = self.document.execution.r_lite.iter();
        let sizes =
            entries.filter(|it| it.rank.contains(rank)).map(|RLiteEntry { children, .. }| {
                (children.core.len(), children.gpu.as_ref().map_or(0, IdSet::len))
            });
        sizes.reduce(|(cores, gpus), (core, gpu)| (cores + core, gpus + gpu))
    }

    /// The number of slots of a job's allocation; `None` for the resources of an instance.
    pub fn slot_count(&self) -> Option<u64> {
        self.document.execution.nslots
    }

    /// When the allocation expires, in seconds since the Unix epoch, if it does.
    pub fn expiration(&self) -> Option<f64> {
        Some(self.document.execution.expiration).filter(|time| *time > 0.0)
    }

    /// The ranks of each property.
    pub fn properties(&self) -> &BTreeMap<String, IdSet> {
        &self.document.execution.properties
    }

    fn count(&self, kind: impl Fn(&Children) -> Option<&IdSet>) -> u64 {
        let entries = self.document.execution.r_lite.iter();
        let counts = entries.map(|entry| {
            let each = kind(&entry.children).map_or(0, IdSet::len);
            entry.rank.len().saturating_mul(each)
        });
        counts.fold(0, u64::saturating_add)
    }
}

impl fmt::Display for ResourceSet {
    /// R as one line of JSON.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(&self.document).map_err(|_| fmt::Error)?;
        formatter.write_str(&json)
    }
}

impl TryFrom<Document> for ResourceSet {
    type Error = ResourceSetError;

    fn try_from(document: Document) -> Result<Self, ResourceSetError> {
        let version = document.version;
        if version != VERSION {
            return Err(ResourceSetError::Version { version });
        }
        let execution = &document.execution;
        check_times(execution.starttime, execution.expiration)?;
        if execution.nslots == Some(0) {
            return Err(ResourceSetError::Slots);
        }
        let entries = execution.r_lite.iter();
        // A rank may be in several entries. Repeated unions would take quadratic time for many
        // entries, so all ranges are joined at once.
        let ranks = IdSet::union_all(entries.map(|entry| &entry.rank));
        if ranks.is_empty() {
            return Err(ResourceSetError::Empty);
        }
        let mut hosts = HostList::new();
        for part in &execution.nodelist {
            hosts.append(part).map_err(|source| ResourceSetError::NodeList { source })?;
        }
        if ranks.len() != hosts.len() as u64 {
            return Err(ResourceSetError::Hosts { ranks: ranks.len(), hosts: hosts.len() });
        }
        for (name, targets) in &execution.properties {
            check_property(name, targets, &ranks)?;
        }
        Ok(Self { document, ranks, hosts })
    }
}

impl From<ResourceSet> for Document {
    fn from(resources: ResourceSet) -> Self {
        resources.document
    }
}

fn check_times(starttime: f64, expiration: f64) -> Result<(), ResourceSetError> {
    let ordered = starttime == 0.0 || expiration == 0.0 || expiration > starttime;
    if ordered && starttime >= 0.0 && expiration >= 0.0 {
        return Ok(());
    }
    Err(ResourceSetError::Times { starttime, expiration })
}

fn check_property(name: &str, targets: &IdSet, ranks: &IdSet) -> Result<(), ResourceSetError> {
    if name.is_empty() || name.contains(FORBIDDEN_IN_PROPERTIES) {
        let name = name.to_owned();
        return Err(ResourceSetError::PropertyName { name });
    }
    let missing = targets.difference(ranks);
    if !missing.is_empty() {
        return Err(ResourceSetError::PropertyRanks { name: name.to_owned(), ranks: missing });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
