//! What a list of jobs takes in memory. It is alone in its program, so that the memory of the process is
//! that of the list.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use flux_operator_api::MiniCluster;
use flux_operator_api::view::InstanceJobs;
use flux_operator_burst::{IdleRanks, Situation};
use flux_operator_testkit::smallest_minicluster;
use k8s_openapi::jiff::Timestamp;

/// The most memory that the process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

/// As many attributes as fit into a list, each as short as can be. As maps they took 16 times the text,
/// for each of several lists.
#[test]
fn a_hostile_list_takes_a_small_multiple_of_its_text() {
    let attributes: Vec<String> = (0..900).map(|it| format!("\"{it:03}\":1")).collect();
    let attributes = attributes.join(",");
    let job =
        |id: u32| format!(r#"{{"id":{id},"tasks":1,"submitted":1,"attributes":{{{attributes}}}}}"#);
    let jobs: Vec<String> = (0..560).map(job).collect();
    let text = format!(r#"{{"listed":true,"items":[{}]}}"#, jobs.join(","));
    assert!(text.len() > 4_000_000, "{}", text.len());
    let cluster: MiniCluster = serde_json::from_value(smallest_minicluster("fs")).unwrap();
    let before = peak();
    let lists: Vec<InstanceJobs> = (0..4).map(|_| serde_json::from_str(&text).unwrap()).collect();
    let situations = lists.iter().map(|list| {
        Situation::of(&cluster, list, &[], &mut IdleRanks::default(), Timestamp::UNIX_EPOCH)
    });
    let situations: Vec<Situation> = situations.collect();
    assert!(situations.iter().all(|it| it.jobs[0].attributes.contains("899")));
    let taken = peak() - before;
    assert!(taken < 2 * lists.len() * text.len(), "{taken} of {} bytes", text.len());
}
