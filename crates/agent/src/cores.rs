//! Counts the cores that jobs may use: those this process may run on, but not
//! more than the container's limit.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

/// Counts the cores. `limit` is the container's CPU limit as passed by the operator, such as `4`
/// or `2500m`; without one the control group's quota is used.
pub fn count(limit: Option<&str>) -> NonZeroU32 {
    let limit = limit.and_then(parse_limit).or_else(|| cgroup_quota(Path::new("/sys/fs/cgroup")));
    usable_cores(affinity(), limit)
}

/// A fractional limit is rounded up: a task can also be started on half a core.
fn usable_cores(affinity: u32, limit: Option<f64>) -> NonZeroU32 {
    let limit = limit.map_or(u32::MAX, |limit| limit.ceil() as u32);
    NonZeroU32::new(affinity.min(limit)).unwrap_or(NonZeroU32::MIN)
}

fn affinity() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
}

/// Parses a Kubernetes quantity of cores. An empty, zero or invalid quantity is no limit.
fn parse_limit(text: &str) -> Option<f64> {
    let text = text.trim();
    let limit = match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<f64>().ok()? / 1000.0,
        None => text.parse().ok()?,
    };
    Some(limit).filter(|limit| limit.is_finite() && *limit > 0.0)
}

/// The CPU quota of the control group mounted at `root`, version 1 or 2.
fn cgroup_quota(root: &Path) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
    let read = |name: &str| fs::read_to_string(root.join(name)).ok();
    if let Some(text) = read("cpu.max") {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(number(quota)? / number(period)?);
    }
    // Without a limit the quota is -1.
    Some(number(&read("cpu/cpu.cfs_quota_us")?)? / number(&read("cpu/cpu.cfs_period_us")?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_affinity_and_limit_is_used_and_is_at_least_one() {
        for (affinity, limit, cores) in [
            (8, None, 8),
            (8, Some(2.0), 2),
            (8, Some(2.5), 3),
            (8, Some(0.1), 1),
            (2, Some(64.0), 2),
            (0, None, 1),
        ] {
            assert_eq!(usable_cores(affinity, limit).get(), cores);
        }
        assert!(count(Some("1")).get() == 1);
    }

    #[test]
    fn limits_are_read_as_kubernetes_writes_them() {
        for (text, limit) in [
            ("4", Some(4.0)),
            ("2500m", Some(2.5)),
            ("0.5", Some(0.5)),
            ("", None),
            ("0", None),
            ("-1", None),
            ("inf", None),
            ("many", None),
        ] {
            assert_eq!(parse_limit(text), limit, "{text}");
        }
    }

    #[test]
    fn quotas_of_both_control_group_versions_are_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(cgroup_quota(root.path()), None);
        fs::create_dir(root.path().join("cpu")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("cpu/cpu.cfs_quota_us", "150000\n");
        write("cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(cgroup_quota(root.path()), Some(1.5));
        write("cpu/cpu.cfs_quota_us", "-1\n");
        assert_eq!(cgroup_quota(root.path()), None);
        write("cpu.max", "200000 100000\n");
        assert_eq!(cgroup_quota(root.path()), Some(2.0));
        write("cpu.max", "max 100000\n");
        assert_eq!(cgroup_quota(root.path()), None);
    }
}
