//! Nested brokers, which are tasks of a job: they find each other through the instance that runs
//! the job, and their instance has the resources of the job.

use std::net::{IpAddr, Ipv4Addr};

use flux_operator_flux::{IdSet, JobId, ResourceSet};
use serde::{Deserialize, Serialize};

use super::boot::{Boot, new_certificate};
use crate::client::{Client, ClientError};
use crate::message::Request;
use crate::secure::SharedKey;
use crate::socket::{self, Listener};

/// The task of the enclosing instance that runs this broker, as described by its environment.
#[derive(Debug, PartialEq, Eq)]
pub struct ParentTask {
    uri: String,
    id: JobId,
    rank: u32,
    size: u32,
    nodes: u32,
}

/// What a nested instance gets from its parent.
pub struct Nested {
    pub level: u32,
    pub path: String,
    pub parent_uri: String,
    /// The resources of the job, if there is one broker on each of its nodes.
    pub resources: Option<ResourceSet>,
    /// The lead's listener, which is bound before its port can be published.
    pub listener: Option<Listener>,
}

/// What the nested lead publishes for the other brokers.
#[derive(Serialize, Deserialize)]
struct LeadContact {
    endpoint: String,
    certificate: String,
}

/// Why a nested broker did not find the others.
#[derive(Debug, thiserror::Error)]
pub enum NestedError {
    #[error("failed to communicate with the enclosing instance")]
    Parent { source: ClientError },
    #[error("the enclosing instance sent an unexpected reply")]
    UnexpectedReply,
    #[error("failed to listen for the other brokers")]
    Listen { source: socket::SocketError },
    #[error("failed to generate a certificate")]
    Certificate { source: Box<super::boot::BootError> },
}

impl ParentTask {
    /// Returns the task, if the variables that Flux sets for tasks are set.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self {
            uri: variable("FLUX_URI")?,
            id: variable("FLUX_JOB_ID")?.parse().ok()?,
            rank: variable("FLUX_TASK_RANK")?.parse().ok()?,
            size: variable("FLUX_JOB_SIZE")?.parse().ok()?,
            nodes: variable("FLUX_JOB_NNODES")?.parse().ok()?,
        })
    }
}

/// Finds the other tasks of the job.
pub fn boot(task: &ParentTask, hostname: &str) -> Result<Boot, NestedError> {
    let failed = |source| NestedError::Parent { source };
    let mut parent = Client::connect(&task.uri).map_err(failed)?;
    let ParentTask { id, rank, size, .. } = *task;
    let attributes = parent.attributes().map_err(failed)?;
    let attribute = |name: &str| attributes.get(name).cloned().unwrap_or_default();
    let mut nested = Nested {
        level: attribute("instance-level").parse::<u32>().unwrap_or(0) + 1,
        path: format!("{}/{id}", attribute("jobid-path").trim_end_matches('/')),
        parent_uri: task.uri.clone(),
        resources: None,
        listener: None,
    };
    let hosts = match resources(&mut parent, task)? {
        Some(resources) => {
            let hosts = resources.hosts().iter().collect();
            nested.resources = Some(resources);
            hosts
        }
        None => vec![hostname.to_owned(); size as usize],
    };
    if size == 1 {
        let nested = Some(nested);
        return Ok(Boot {
            method: "job",
            rank,
            hosts,
            listen: None,
            lead: None,
            key: None,
            nested,
        });
    }
    let key = "lead".to_owned();
    if rank > 0 {
        let text = parent.text(Request::Get { id, key }).map_err(failed)?;
        let contact: LeadContact =
            serde_json::from_str(&text).map_err(|_| NestedError::UnexpectedReply)?;
        let certificate = flux_operator_flux::Certificate::parse(&contact.certificate)
            .map_err(|_| NestedError::UnexpectedReply)?;
        let (lead, key) = (Some(contact.endpoint), Some(SharedKey::new(&certificate)));
        let nested = Some(nested);
        return Ok(Boot { method: "job", rank, hosts, listen: None, lead, key, nested });
    }
    let address: IpAddr =
        attribute("fluxlet.address").parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let wildcard = match address {
        IpAddr::V4(address) => format!("tcp://{address}:0"),
        IpAddr::V6(address) => format!("tcp://[{address}]:0"),
    };
    let listener = socket::listen(&wildcard).map_err(|source| NestedError::Listen { source })?;
    let bound = listener.address().ok_or(NestedError::UnexpectedReply)?;
    let certificate = new_certificate("nested")
        .map_err(|source| NestedError::Certificate { source: Box::new(source) })?;
    let endpoint = format!("tcp://{bound}");
    let meeting = LeadContact {
        endpoint: endpoint.clone(),
        certificate: certificate.to_secret_text().to_string(),
    };
    let value = serde_json::to_string(&meeting).map_err(|_| NestedError::UnexpectedReply)?;
    parent.execute(Request::Put { id, key, value }).map_err(failed)?;
    nested.listener = Some(listener);
    let (listen, key) = (Some(endpoint), Some(SharedKey::new(&certificate)));
    Ok(Boot { method: "job", rank, hosts, listen, lead: None, key, nested: Some(nested) })
}

/// The resources of the job, if each of its nodes has one broker.
fn resources(parent: &mut Client, task: &ParentTask) -> Result<Option<ResourceSet>, NestedError> {
    if task.size != task.nodes {
        return Ok(None);
    }
    let request = Request::Info { id: task.id, key: "R".to_owned() };
    let text = parent.text(request).map_err(|source| NestedError::Parent { source })?;
    ResourceSet::parse(&text).map(Some).map_err(|_| NestedError::UnexpectedReply)
}

/// The cores and GPUs of each rank of R, in order. [`ResourceSet`] has checked R, but has no
/// accessor for them.
pub fn rank_resources(resources: &ResourceSet) -> Vec<(IdSet, IdSet)> {
    #[derive(Deserialize)]
    struct Document {
        execution: Execution,
    }
    #[derive(Deserialize)]
    struct Execution {
        #[serde(rename = "R_lite")]
        entries: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        rank: IdSet,
        children: Children,
    }
    #[derive(Deserialize)]
    struct Children {
        core: IdSet,
        #[serde(default)]
        gpu: IdSet,
    }
    let Ok(document) = serde_json::from_str::<Document>(&resources.to_string()) else {
        return Vec::new();
    };
    let of_rank = |rank| {
        let entries = document.execution.entries.iter().filter(|entry| entry.rank.contains(rank));
        let mut share = (IdSet::new(), IdSet::new());
        for Entry { children, .. } in entries {
            share = (share.0.union(&children.core), share.1.union(&children.gpu));
        }
        share
    };
    resources.ranks().iter().map(of_rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_recognised_by_its_environment() {
        let variables = [
            ("FLUX_URI", "local:///x"),
            ("FLUX_JOB_ID", "ƒ2bGzJKq"),
            ("FLUX_TASK_RANK", "1"),
            ("FLUX_JOB_SIZE", "2"),
            ("FLUX_JOB_NNODES", "2"),
        ];
        let all = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let task = ParentTask::from_environment(all).unwrap();
        assert_eq!((task.rank, task.size), (1, 2));
        let without = |name: &str| all(name).filter(|_| name != "FLUX_TASK_RANK");
        assert_eq!(ParentTask::from_environment(without), None);
    }

    #[test]
    fn rank_resources_are_those_of_r() {
        let text = r#"{"version": 1, "execution": {"R_lite": [{"rank": "1-2", "children": {"core": "0-1"}}, {"rank": "2", "children": {"core": "3", "gpu": "0"}}], "nodelist": ["a", "b"]}}"#;
        let shares = rank_resources(&ResourceSet::parse(text).unwrap());
        let texts: Vec<String> =
            shares.iter().map(|(cores, gpus)| format!("{cores}/{gpus}")).collect();
        assert_eq!(texts, ["0-1/", "0-1,3/0"]);
    }
}
