//! How a job finishes: exited tasks, exceptions, time limits, lost brokers.

use flux_operator_flux::{JobId, JobState};
use serde_json::{Value, json};

use super::job::{Exception, Job};
use super::lifecycle::owned;
use super::{Action, Instance};
use crate::bytes::Bytes;
use crate::message::{Reply, Report, TaskOwner, TaskRequest};

/// How long tasks may take to exit after SIGTERM: Flux's `kill-timeout`.
const KILL_TIMEOUT: f64 = 5.0;

/// How long other tasks may run after the first has exited: the job shell's `exit-timeout`.
const EXIT_TIMEOUT: f64 = 30.0;

const SIGKILL: i32 = 9;
const SIGALRM: i32 = 14;
const SIGTERM: i32 = 15;

impl Instance {
    pub(super) fn task_exited(&mut self, id: JobId, task: u32, code: i32) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.running.remove(&task).is_none() {
            return;
        }
        job.code = job.code.max(code);
        if job.running.is_empty() {
            return self.close_files(id);
        }
        let timeout = exit_timeout(job);
        if let (None, Some(timeout)) = (job.exit_deadline, timeout) {
            job.exit_deadline = Some((now + timeout, task));
        }
    }

    /// All tasks have exited; the job has finished once its output is in its files.
    fn close_files(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let has_files = job.submission.files.iter().any(Option::is_some);
        let first = job.allocation.first().map(|share| share.rank);
        match first.filter(|rank| has_files && self.nodes[*rank as usize].is_online()) {
            Some(rank) if !job.closing => {
                job.closing = true;
                self.order(rank, TaskRequest::Close { run: TaskOwner::Job(id) });
            }
            _ => self.finish(id),
        }
    }

    pub(super) fn finish(&mut self, id: JobId) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.state != JobState::Run || !job.running.is_empty() {
            return;
        }
        // If the shell itself failed, the exit codes of its tasks do not matter.
        let status = if job.shell_failed { 1 } else { job.code } << 8;
        job.status = Some(status);
        job.enter(JobState::Cleanup, now);
        let replies = [
            Job::event(now, "finish", owned([("status", json!(status))])),
            Job::event(now, "release", owned([("ranks", json!("all")), ("final", json!(true))])),
            Job::event(now, "free", Vec::new()),
        ];
        for share in &job.allocation {
            self.nodes[share.rank as usize].release(&share.cores, &share.gpus);
        }
        self.running.remove(&id);
        self.publish(id, replies);
        self.clean(id);
    }

    fn clean(&mut self, id: JobId) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let last = Job::event(now, "clean", Vec::new());
        job.enter(JobState::Inactive, now);
        job.published_waiters.clear();
        job.early_input.clear();
        self.publish(id, [last, Reply::Done]);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.watchers.clear();
        }
        self.reply_to_waiters();
    }

    /// Raises an exception on a job. Severity 0 is fatal (Flux RFC 21).
    pub(super) fn raise(&mut self, id: JobId, kind: &str, severity: u8, note: &str) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.state == JobState::Inactive {
            return;
        }
        let context = [
            ("type", json!(kind)),
            ("severity", json!(severity)),
            ("note", json!(note)),
            ("userid", json!(self.settings.owner)),
        ];
        let event = Job::event(now, "exception", owned(context));
        let first = severity == 0 && job.fatal.is_none();
        if first {
            let (kind, note) = (kind.to_owned(), note.to_owned());
            job.fatal = Some(Exception { kind, severity, note });
        }
        let state = job.state;
        self.publish(id, [event]);
        match state {
            _ if !first => {}
            JobState::Run => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.kill_at = Some(now + KILL_TIMEOUT);
                }
                self.signal(id, if kind == "timeout" { SIGALRM } else { SIGTERM });
            }
            JobState::Cleanup => {}
            _ => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.enter(JobState::Cleanup, now);
                }
                self.queue.retain(|(_, queued)| *queued != id);
                self.clean(id);
            }
        }
    }

    /// Fails a job for a reason that is not the exit of a task; its exit code is 1.
    pub(super) fn fail_shell(&mut self, id: JobId, kind: &str, note: &str) {
        self.raise(id, kind, 0, note);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.shell_failed = true;
        }
    }

    /// Sends a signal to all tasks of a job.
    pub(super) fn signal(&mut self, id: JobId, signal: i32) {
        let Some(job) = self.jobs.get(&id) else { return };
        for rank in job.ranks().iter() {
            self.order(rank, TaskRequest::Signal { owner: TaskOwner::Job(id), signal });
        }
    }

    /// Fails the jobs that had tasks on a lost broker.
    pub(super) fn fail_lost_tasks(&mut self, rank: u32, host: &str) {
        let affected: Vec<JobId> = self
            .running
            .iter()
            .filter(|id| self.jobs.get(id).is_some_and(|job| job.ranks().contains(rank)))
            .copied()
            .collect();
        for id in affected {
            let note = format!("node failure on {host} (rank {rank})");
            self.actions.push(Action::Log(format!("{id}: {note}")));
            self.raise(id, "exec", 0, &note);
            let Some(job) = self.jobs.get(&id) else { continue };
            let waiting =
                job.closing && job.allocation.first().is_some_and(|share| share.rank == rank);
            self.abandon_tasks(id, rank);
            if waiting {
                self.finish(id);
            }
        }
    }

    /// Marks the tasks of a job on this rank as exited, because they cannot report any more.
    pub(super) fn abandon_tasks(&mut self, id: JobId, rank: u32) {
        let Some(job) = self.jobs.get(&id) else { return };
        let lost: Vec<u32> =
            job.running.iter().filter(|(_, at)| **at == rank).map(|(task, _)| *task).collect();
        for task in lost {
            self.task_exited(id, task, 1);
        }
    }

    pub(super) fn check_deadlines(&mut self) {
        let now = self.now;
        for id in self.running.clone() {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if job.kill_at.is_some_and(|time| time <= now) {
                job.kill_at = Some(now + KILL_TIMEOUT);
                self.signal(id, SIGKILL);
            } else if job.fatal.is_none() && job.expiration.is_some_and(|time| time <= now) {
                self.raise(id, "timeout", 0, "resource allocation expired");
            } else if let Some((time, task)) = job.exit_deadline
                && time <= now
            {
                job.exit_deadline = None;
                let timeout = exit_timeout(job).unwrap_or(EXIT_TIMEOUT);
                let command =
                    job.submission.command.first().map(Bytes::to_text).unwrap_or_default();
                let host = job.allocation.first().map_or("", |share| share.host.as_str());
                let note = format!(
                    "{command}: task rank {task} on host {host} exited (Exit {}) and exit-timeout={timeout}s has expired",
                    job.code
                );
                let text = format!("FATAL: task-exit: {note}");
                self.handle_report(0, Report::Notice { run: TaskOwner::Job(id), text });
                self.fail_shell(id, "exec", &note);
            }
        }
    }
}

/// The job shell's option `exit-timeout`, unless it is `none`.
fn exit_timeout(job: &Job) -> Option<f64> {
    match job.submission.options.get("exit-timeout") {
        Some(Value::Number(seconds)) => seconds.as_f64(),
        Some(Value::String(text)) if text == "none" => None,
        Some(Value::String(text)) => crate::duration::parse(text),
        _ => Some(EXIT_TIMEOUT),
    }
}
