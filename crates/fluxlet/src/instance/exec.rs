//! `flux exec`: runs a command on the hosts of brokers, outside of any job.

use std::collections::BTreeSet;

use flux_operator_flux::IdSet;

use super::{Instance, Origin};
use crate::bytes::Bytes;
use crate::message::{Launch, RefusalKind, Reply, Report, TaskOwner, TaskRequest};

/// A command that is running on some brokers.
#[derive(Debug)]
pub(super) struct RunningExec {
    origin: Origin,
    tag: u64,
    ranks: BTreeSet<u32>,
}

/// The message of `flux exec` for a host that cannot be reached.
const UNREACHABLE: &str = "No route to host";

/// The exit code of `flux exec` for `EHOSTUNREACH`.
const UNREACHABLE_CODE: i32 = 68;

impl Instance {
    pub(super) fn exec(
        &mut self,
        (origin, tag): (Origin, u64),
        (ranks, exclude): (Option<IdSet>, IdSet),
        command: Vec<Bytes>,
        directory: Option<Bytes>,
        environment: Vec<(Bytes, Bytes)>,
    ) {
        let all: IdSet = self.nodes.iter().map(|node| node.rank).collect();
        let ranks = ranks.unwrap_or_else(|| all.clone()).difference(&exclude);
        let invalid = ranks.difference(&all);
        if !invalid.is_empty() {
            let text = format!("One or more invalid --ranks specified: {invalid}");
            return self.refuse(origin, tag, RefusalKind::Invalid, text);
        }
        self.exec_count += 1;
        let run = TaskOwner::Exec(self.exec_count);
        let mut exec = RunningExec { origin, tag, ranks: BTreeSet::new() };
        for rank in ranks.iter() {
            if !self.is_online(rank) {
                let error = format!("{}: {UNREACHABLE}", first_word(&command));
                let code = UNREACHABLE_CODE;
                self.reply(origin, tag, Reply::Unreachable { rank, error, code });
                continue;
            }
            exec.ranks.insert(rank);
            let launch = Launch {
                run,
                tasks: vec![rank],
                command: command.clone(),
                directory: directory.clone(),
                environment: environment.clone(),
                input: false,
                files: [None, None],
                script: None,
            };
            self.order(rank, TaskRequest::Launch(Box::new(launch)));
        }
        if exec.ranks.is_empty() {
            return self.reply(origin, tag, Reply::Done);
        }
        self.execs.insert(self.exec_count, exec);
    }

    /// Handles a broker's report about a command; `task` is the broker's rank.
    pub(super) fn exec_report(&mut self, number: u64, report: Report) {
        let Some(exec) = self.execs.get(&number) else { return };
        let (origin, tag) = (exec.origin, exec.tag);
        match report {
            Report::Output { task, stream, data, .. } => {
                self.reply(origin, tag, Reply::Output { task, stream, data });
            }
            Report::Failed { task: rank, error, code, .. } => {
                let (command, error) = error.rsplit_once(": ").unwrap_or(("", &error));
                let error = format!("{command}: error launching process: {error}");
                self.reply(origin, tag, Reply::Unreachable { rank, error, code });
                self.finish_exec_rank(number, rank);
            }
            Report::Exited { task: rank, status, .. } => {
                self.reply(origin, tag, Reply::Exited { rank, status });
                self.finish_exec_rank(number, rank);
            }
            Report::Notice { .. }
            | Report::Refused { .. }
            | Report::Opened { .. }
            | Report::Closed { .. } => {}
        }
    }

    /// Fails the commands on a lost broker.
    pub(super) fn fail_lost_execs(&mut self, rank: u32) {
        let lost: Vec<u64> = self
            .execs
            .iter()
            .filter(|(_, exec)| exec.ranks.contains(&rank))
            .map(|(number, _)| *number)
            .collect();
        for number in lost {
            if let Some(exec) = self.execs.get(&number) {
                let error = UNREACHABLE.to_owned();
                let reply = Reply::Unreachable { rank, error, code: UNREACHABLE_CODE };
                self.reply(exec.origin, exec.tag, reply);
            }
            self.finish_exec_rank(number, rank);
        }
    }

    /// Kills the commands of clients that have disconnected.
    pub(super) fn abandon_execs(&mut self, is_disconnected: impl Fn(Origin) -> bool) {
        let abandoned = self.execs.iter().filter(|(_, exec)| is_disconnected(exec.origin));
        let abandoned: Vec<u64> = abandoned.map(|(number, _)| *number).collect();
        abandoned.into_iter().for_each(|number| self.kill_exec(number));
    }

    pub(super) fn kill_execs(&mut self) {
        let all: Vec<u64> = self.execs.keys().copied().collect();
        all.into_iter().for_each(|number| self.kill_exec(number));
    }

    fn kill_exec(&mut self, number: u64) {
        let Some(exec) = self.execs.remove(&number) else { return };
        for rank in exec.ranks {
            let signal = rustix::process::Signal::KILL.as_raw();
            self.order(rank, TaskRequest::Signal { owner: TaskOwner::Exec(number), signal });
        }
    }

    fn finish_exec_rank(&mut self, number: u64, rank: u32) {
        let Some(exec) = self.execs.get_mut(&number) else { return };
        exec.ranks.remove(&rank);
        if exec.ranks.is_empty() {
            let (origin, tag) = (exec.origin, exec.tag);
            self.execs.remove(&number);
            self.reply(origin, tag, Reply::Done);
        }
    }
}

fn first_word(command: &[Bytes]) -> String {
    command.first().map(Bytes::to_text).unwrap_or_default()
}
