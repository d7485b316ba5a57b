//! The resource usage of a process and its descendants.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// Resource usage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Usage {
    /// User and system CPU time.
    pub(crate) cpu_seconds: f64,
    /// Peak memory.
    pub(crate) peak_mebibytes: f64,
}

/// The usage of a process and its living descendants; of terminated children, only the CPU time.
pub(crate) fn process_tree_usage(root: u32) -> Usage {
    let mut total = Usage::default();
    for process in tree(root, &parents()) {
        let read = |file| std::fs::read_to_string(format!("/proc/{process}/{file}"));
        // A process that has exited meanwhile has no files any more.
        if let (Ok(stat), Ok(status)) = (read("stat"), read("status")) {
            total.cpu_seconds += cpu_seconds(&stat).unwrap_or_default();
            total.peak_mebibytes += peak_kibibytes(&status).unwrap_or_default() as f64 / 1024.0;
        }
    }
    total
}

/// The parent of every process on the machine.
fn parents() -> BTreeMap<u32, u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            Some((process, field(&stat, 4)?.try_into().ok()?))
        })
        .collect()
}

fn tree(root: u32, parents: &BTreeMap<u32, u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([root]);
    loop {
        let more = parents.iter().filter(|(_, parent)| found.contains(*parent));
        let more: Vec<u32> = more.map(|(process, _)| *process).collect();
        let before = found.len();
        found.extend(more);
        if found.len() == before {
            return found;
        }
    }
}

/// When a process started, in seconds since the machine booted, from its proc_pid_stat(5).
pub(crate) fn start_seconds(stat: &str) -> Option<f64> {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    Some(field(stat, 22)? as f64 / ticks)
}

/// The CPU time of a process and of its children that have terminated, from its proc_pid_stat(5).
pub(crate) fn cpu_seconds(stat: &str) -> Option<f64> {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    Some(cpu_ticks(stat)? as f64 / ticks)
}

/// utime, stime, cutime and cstime of proc_pid_stat(5).
fn cpu_ticks(stat: &str) -> Option<u64> {
    (14..=17).map(|number| field(stat, number)).sum()
}

/// A field of proc_pid_stat(5), with the number from the manual. The second is a name, which may
/// contain spaces.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

fn peak_kibibytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_after_a_name_with_spaces_are_found() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 10 0 0 0 30 12 5 3 20 0 1 0 100";
        assert_eq!(field(stat, 4), Some(1));
        assert_eq!(cpu_ticks(stat), Some(50));
    }

    #[test]
    fn the_peak_is_read() {
        assert_eq!(peak_kibibytes("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1 kB\n"), Some(2048));
    }

    #[test]
    fn grandchildren_belong_to_the_tree() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 9)]);
        assert_eq!(tree(1, &parents), BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn this_process_uses_something() {
        assert!(process_tree_usage(std::process::id()).peak_mebibytes > 0.1);
    }
}
