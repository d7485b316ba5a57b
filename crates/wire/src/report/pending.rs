//! Pending jobs of an instance, listed in pages: there may be more than fit into one request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A page of the list of pending jobs, in the order in which the scheduler considers them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPage {
    /// The number of the list that this page belongs to. A newer list replaces older ones.
    pub list: u64,
    /// How many jobs of the list are on earlier pages.
    pub offset: u32,
    /// How many jobs are pending in total.
    pub total: u32,
    /// The jobs.
    pub jobs: Vec<PendingJob>,
}

/// A pending job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingJob {
    /// Its ID, as a number.
    pub id: u64,
    /// How many nodes it requests; `None` if that is left to the scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nodes: Option<u32>,
    /// How many tasks it has.
    pub tasks: u32,
    /// When it was submitted, in seconds since the Unix epoch.
    pub submitted: u64,
    /// Its attributes below `attributes.system`, such as `burstable`, as JSON.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub attributes: BTreeMap<String, serde_json::Value>,
}

/// The maximum size of a page: well below the operator's limit for one request.
const MAX_BYTES: usize = 32 * 1024;

/// The maximum size of one job. A larger job is listed without its attributes.
const MAX_JOB_BYTES: usize = 8 * 1024;

impl PendingPage {
    /// Splits a list into pages, each small enough for one request. An empty list is one empty
    /// page.
    pub fn split(list: u64, jobs: Vec<PendingJob>) -> Vec<PendingPage> {
        let total = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        let new_page = |offset| PendingPage { list, offset, total, jobs: Vec::new() };
        let mut pages = Vec::new();
        let (mut page, mut bytes, mut offset) = (new_page(0), 0, 0);
        for job in jobs {
            let job = job.without_oversized_attributes();
            let length = job.length();
            if bytes + length > MAX_BYTES && !page.jobs.is_empty() {
                pages.push(std::mem::replace(&mut page, new_page(offset)));
                bytes = 0;
            }
            bytes += length;
            offset += 1;
            page.jobs.push(job);
        }
        pages.push(page);
        pages
    }
}

impl PendingJob {
    fn length(&self) -> usize {
        serde_json::to_vec(self).map_or(0, |text| text.len() + 1)
    }

    /// The job, without its attributes if they make it too large for a page.
    fn without_oversized_attributes(mut self) -> PendingJob {
        if self.length() > MAX_JOB_BYTES {
            self.attributes.clear();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, attribute: &str) -> PendingJob {
        let attributes = BTreeMap::from([("burstable".into(), attribute.into())]);
        PendingJob { id, nodes: Some(4), tasks: 4, submitted: 7, attributes }
    }

    #[test]
    fn an_empty_list_is_one_empty_page() {
        let pages = PendingPage::split(3, Vec::new());
        assert_eq!(pages, [PendingPage { list: 3, ..PendingPage::default() }]);
    }

    #[test]
    fn every_job_is_on_one_page_and_every_page_fits_a_request() {
        let jobs: Vec<_> = (0..1000).map(|id| job(id, &"x".repeat(id as usize))).collect();
        let pages = PendingPage::split(1, jobs.clone());
        assert!(pages.len() > 1);
        for page in &pages {
            assert!(serde_json::to_vec(page).unwrap().len() <= MAX_BYTES + 100);
            assert_eq!(page.total, 1000);
            assert_eq!(page.jobs[0].id, u64::from(page.offset));
        }
        let together: Vec<_> = pages.into_iter().flat_map(|page| page.jobs).collect();
        assert_eq!(together, jobs);
    }

    #[test]
    fn a_job_too_large_for_a_page_loses_its_attributes() {
        let pages = PendingPage::split(1, vec![job(1, &"x".repeat(MAX_BYTES)), job(2, "1")]);
        assert_eq!(pages.len(), 1);
        assert!(pages[0].jobs[0].attributes.is_empty());
        assert_eq!(pages[0].jobs[1], job(2, "1"));
    }
}
