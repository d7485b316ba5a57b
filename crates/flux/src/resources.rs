//! Resource sets: R, the JSON that says which cores and GPUs belong to which rank and host.
//! Follows Flux RFC 20, version 1.
//!
//! R is what `resource.path` points to, what a job is given, and what `flux R encode` prints. A
//! [`ResourceSet`] has been checked: its ranks and hosts match, its times and properties make
//! sense. Keys that this module does not know, such as what a scheduler adds, are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::hostlist::{HostList, HostListError};
use crate::idset::IdSet;

/// The version of R that this module knows.
const VERSION: u64 = 1;

/// Characters that RFC 20 keeps out of property names.
const NOT_IN_PROPERTIES: [char; 9] = ['!', '&', '\'', '"', '^', '`', '|', '(', ')'];

/// A checked resource set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct ResourceSet {
    document: Document,
    // What the document's entries come to; they are read often and cost a pass each.
    ranks: IdSet,
    hosts: HostList,
}

/// R as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Document {
    version: u64,
    execution: Execution,
    /// `scheduling`, and whatever else there is.
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// In the order that Flux prints its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Execution {
    #[serde(rename = "R_lite")]
    r_lite: Vec<Entry>,
    /// Seconds since 1970; 0 is not set.
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

/// Some ranks, and the resources that each of them has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
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
#[error("failed to read R")]
pub struct ParseError {
    source: serde_json::Error,
}

/// Why resources do not make a resource set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ResourceSetError {
    /// Not version 1.
    #[error("R has version {version}, only version {VERSION} is known")]
    Version {
        /// The version found.
        version: u64,
    },
    /// No ranks at all.
    #[error("R has no ranks")]
    Empty,
    /// Ranks and hosts are mapped one to one.
    #[error("R has {ranks} ranks but {hosts} hosts")]
    Hosts {
        /// How many different ranks.
        ranks: u64,
        /// How many hosts.
        hosts: usize,
    },
    /// The node list is too long.
    #[error("R has a bad node list")]
    NodeList {
        /// What is wrong with it.
        source: HostListError,
    },
    /// An allocation of no slots.
    #[error("R has 0 slots")]
    Slots,
    /// Negative, or the end is not after the start.
    #[error("R is valid from {starttime} to {expiration}, which is no time")]
    Times {
        /// Seconds since 1970.
        starttime: f64,
        /// Seconds since 1970.
        expiration: f64,
    },
    /// A property name with a character that RFC 20 forbids, or without any.
    #[error("property {name:?} is empty or has one of the characters ! & ' \" ^ ` | ( )")]
    PropertyName {
        /// The name.
        name: String,
    },
    /// A property of ranks that are not there.
    #[error("property {name:?} is given to ranks {ranks}, which R does not have")]
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
        let count = u32::try_from(hosts.len()).expect("a host list is shorter");
        let entry = Entry {
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

    /// Reads and checks R.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        serde_json::from_str(text).map_err(|source| ParseError { source })
    }

    /// The same resources with a property on some ranks, instead of what it was on before.
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

    /// The hosts, in the order of their ranks.
    pub fn hosts(&self) -> &HostList {
        &self.hosts
    }

    /// The host of `rank`.
    pub fn host(&self, rank: u32) -> Option<String> {
        let position = self.ranks.position(rank)?;
        self.hosts.nth(usize::try_from(position).ok()?)
    }

    /// How many cores there are on all ranks together.
    pub fn core_count(&self) -> u64 {
        self.count(|children| Some(&children.core))
    }

    /// How many GPUs there are on all ranks together.
    pub fn gpu_count(&self) -> u64 {
        self.count(|children| children.gpu.as_ref())
    }

    /// How many slots a job was given; none for the resources of an instance.
    pub fn slot_count(&self) -> Option<u64> {
        self.document.execution.nslots
    }

    /// Seconds since 1970 after which the resources are gone, if there is such a time.
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
        // A rank may be in several entries. Pairwise unions would take quadratic time on a long
        // list of them, so the ranges are joined at once.
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
    if name.is_empty() || name.contains(NOT_IN_PROPERTIES) {
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
