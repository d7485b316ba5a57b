//! Finds a pending job that blocks those behind it: it needs more brokers than are online, and
//! Flux's simple scheduler starts jobs strictly in order.

use flux_operator_flux::ListedJob;
use flux_operator_wire::BlockingJob;

use crate::flux_command::FluxCommand;

/// Looks for such a job, in instances that have ranks which may be down on purpose.
pub struct BlockedProbe {
    command: FluxCommand,
    scheduler: SchedulerProbe,
}

/// Which scheduler Flux has.
pub struct SchedulerProbe {
    command: FluxCommand,
    /// Whether it is Flux's simple one; `None` before that was asked.
    is_simple: Option<bool>,
}

impl SchedulerProbe {
    /// Creates it. It is asked when a job is pending, because the scheduler is loaded by then.
    pub fn new(command: FluxCommand) -> SchedulerProbe {
        SchedulerProbe { command, is_simple: None }
    }

    /// Whether Flux has its simple scheduler, which starts jobs strictly in order; Fluxion starts later
    /// jobs. Only an answer is remembered.
    pub fn is_simple(&mut self) -> bool {
        if self.is_simple.is_none() {
            let modules = self.command.query(&["module", "list"]);
            self.is_simple = modules.map(|modules| !modules.contains("fluxion"));
        }
        self.is_simple.unwrap_or(false)
    }
}

impl BlockedProbe {
    /// Creates it.
    pub fn new(command: FluxCommand) -> BlockedProbe {
        BlockedProbe { scheduler: SchedulerProbe::new(command.clone()), command }
    }

    /// The first pending job, if it needs more than the `online` brokers. `pending` is the number of
    /// pending jobs; fluxlet does not count them (`None`).
    pub fn probe(&mut self, pending: Option<u32>, online: u64) -> Option<BlockingJob> {
        if pending == Some(0) || (pending.is_some() && !self.scheduler.is_simple()) {
            return None;
        }
        let text = self.command.query(&["job", "list", "--states=pending", "--count=1"])?;
        let job = text.lines().find_map(ListedJob::parse)?;
        let nodes = job.nodes.filter(|nodes| u64::from(*nodes) > online)?;
        Some(BlockingJob { job: job.id.number(), nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::write_script;

    fn probe(modules: &str, jobs: &str, pending: impl Into<Option<u32>>) -> Option<BlockingJob> {
        let directory = tempfile::tempdir().unwrap();
        let flux = directory.path().join("flux");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in\n*module*) {modules};;\n*job*) echo '{jobs}';;\nesac\n"
        );
        write_script(&flux, &script);
        BlockedProbe::new(FluxCommand { flux, uri: "local:///x".into() }).probe(pending.into(), 2)
    }

    #[test]
    fn only_a_job_that_is_too_large_for_what_is_online_blocks_a_simple_scheduler() {
        // What flux-core 0.88 prints, shortened.
        let large = r#"{"id":42,"userid":0,"nnodes":4,"ntasks":4}"#;
        let small = r#"{"id":42,"userid":0,"nnodes":2,"ntasks":2}"#;
        let simple = "echo sched-simple 0 R 0 0 feasibility,sched";
        assert_eq!(probe(simple, large, 1), Some(BlockingJob { job: 42, nodes: 4 }));
        assert_eq!(probe("exit 1", large, None), Some(BlockingJob { job: 42, nodes: 4 }));
        assert_eq!(probe("exit 1", large, 1), None, "the scheduler is not known");
        assert_eq!(probe(simple, small, 1), None, "it waits for other jobs");
        assert_eq!(probe(simple, r#"{"id":42,"ntasks":9}"#, 1), None, "any number of nodes");
        assert_eq!(probe("echo sched-fluxion-qmanager 0", large, 1), None);
        assert_eq!(probe(simple, large, 0), None);
    }
}
