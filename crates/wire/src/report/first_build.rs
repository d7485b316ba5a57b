//! Reports of agents of the first build, which had only one kind of report.

use flux_operator_flux::IdSet;
use serde::Deserialize;
use serde_json::Value;

use super::{Drained, InstanceState, JobCounts, Report, Work};

/// The single kind of report that such an agent sends.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct FirstBuildReport {
    rank: u32,
    wants_lead: bool,
    wants_work: Option<Vec<Work>>,
    brokers: Option<Brokers>,
    program_started: bool,
    jobs: Option<JobCounts>,
    drained: Option<Drained>,
    last_error: String,
}

#[derive(Deserialize)]
struct Brokers {
    online: u32,
}

/// Parses such a report, and converts it to today's.
pub(super) fn parse(text: &[u8]) -> Option<Report> {
    // Serde would decode an array as the struct too.
    let report: Value = serde_json::from_slice(text).ok().filter(Value::is_object)?;
    let report: FirstBuildReport = serde_json::from_value(report).ok()?;
    if let Some(known) = report.wants_work {
        return Some(Report::WorkWanted { known });
    }
    // A worker sent no other kind of report.
    if report.wants_lead || report.rank != 0 {
        return Some(Report::LeadWanted);
    }
    Some(Report::Instance(InstanceState {
        // It reported how many brokers are online, not which. These are usually the lowest ranks.
        online: report.brokers.map(|brokers| IdSet::first_n(brokers.online)),
        program_started: report.program_started,
        jobs: report.jobs,
        first_job: String::new(),
        drained: report.drained,
        blocking_job: None,
        lead: None,
        last_error: report.last_error,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As agents of the first build have sent them.
    #[test]
    fn reports_of_the_first_build_are_still_parsed() {
        let read = |text: &str| Report::parse(text.as_bytes()).unwrap();
        assert_eq!(
            read(r#"{"rank":3,"wantsLead":true,"programStarted":false}"#),
            Report::LeadWanted
        );
        let asks = r#"{"rank":0,"wantsLead":false,"wantsWork":[{"drain":{"ranks":"2-3","since":""}}],"programStarted":false}"#;
        let Report::WorkWanted { known } = read(asks) else { panic!("{asks}") };
        assert_eq!(known.len(), 1);
        let says = r#"{"rank":0,"wantsLead":false,"brokers":{"online":3,"total":4},"programStarted":true,
            "jobs":{"pending":1,"running":2,"inactive":3},
            "drained":{"asked":{"ranks":"2-3","since":"s"},"busy":"2"},"lastError":"e"}"#;
        let Report::Instance(state) = read(says) else { panic!("{says}") };
        assert_eq!(state.online, Some(IdSet::first_n(3)));
        assert!(state.program_started);
        assert_eq!(state.jobs.unwrap().running, 2);
        assert_eq!(state.drained.unwrap().busy.to_string(), "2");
        assert_eq!(state.last_error, "e");
    }

    #[test]
    fn malformed_reports_are_rejected() {
        for text in ["", "[]", "null", r#"{"report":"other"}"#, r#"{"rnak":1}"#] {
            assert!(Report::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
