//! The lifecycle of a job until it finishes: submitted, scheduled, started (Flux RFC 21).

use flux_operator_flux::{JobId, JobState};
use serde_json::{Value, json};

use super::job::Job;
use super::launch::{launches, redirection_notices};
use super::{Action, Instance, Origin, allocate};
use crate::bytes::Bytes;
use crate::message::{RefusalKind, Reply, Report, Stream, TaskOwner, TaskRequest};
use crate::submission::Submission;

impl Instance {
    pub(super) fn submit(&mut self, origin: Origin, tag: u64, submission: Submission) {
        if let Some(reason) = &self.disabled {
            let text = format!("job submission is disabled: {reason}");
            return self.refuse(origin, tag, RefusalKind::Invalid, text);
        }
        let id = self.next_id();
        let now = self.now;
        let mut job = Job::new(id, submission, now);
        let urgency = job.urgency;
        let flags = if job.submission.waitable { 4 } else { 0 };
        let context = [
            ("userid", json!(self.settings.owner)),
            ("urgency", json!(urgency)),
            ("flags", json!(flags)),
            ("version", json!(1)),
        ];
        for state in [JobState::Depend, JobState::Priority, JobState::Sched] {
            job.enter(state, now);
        }
        let priority = owned([("priority", json!(job.priority()))]);
        self.jobs.insert(id, job);
        let events = [
            ("submit", owned(context)),
            ("validate", Vec::new()),
            ("depend", Vec::new()),
            ("priority", priority),
        ];
        self.publish(id, events.map(|(name, context)| Job::event(now, name, context)));
        self.enqueue(id);
        self.reply(origin, tag, Reply::Id(id));
        self.reply(origin, tag, Reply::Done);
    }

    /// Puts a pending job into the queue by its priority; a held job is not queued.
    pub(super) fn enqueue(&mut self, id: JobId) {
        self.queue.retain(|(_, queued)| *queued != id);
        let Some(job) = self.jobs.get(&id) else { return };
        if job.state == JobState::Sched && job.priority() > 0 {
            self.queue.insert((std::cmp::Reverse(job.priority()), id));
        }
    }

    /// Starts jobs in order until one does not fit. First come, first served: no backfilling.
    pub(super) fn schedule(&mut self) {
        while self.stopped.is_none() {
            let Some(entry) = self.queue.first().copied() else { return };
            let Some(job) = self.jobs.get_mut(&entry.1) else { return };
            match allocate::allocate(&job.submission.shape, &self.nodes) {
                Ok(None) => return,
                Ok(Some(shares)) => {
                    job.allocation = shares;
                    self.queue.remove(&entry);
                    self.start(entry.1);
                }
                Err(reason) => {
                    self.queue.remove(&entry);
                    self.raise(entry.1, "alloc", 0, &reason);
                }
            }
        }
    }

    fn start(&mut self, id: JobId) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for share in &job.allocation {
            self.nodes[share.rank as usize].allocate(&share.cores, &share.gpus);
        }
        let duration = job.submission.duration;
        job.expiration = (duration > 0.0).then_some(now + duration);
        job.enter(JobState::Run, now);
        let summary = json!({"sched": {"resource_summary": job.resource_summary()}});
        let events = [
            Job::event(now, "alloc", owned([("annotations", summary)])),
            Job::event(now, "start", Vec::new()),
        ];
        let launches = launches(job, &self.settings.path);
        let input = std::mem::take(&mut job.early_input);
        let mut task = 0;
        for (rank, launch) in &launches {
            for _ in &launch.tasks {
                job.running.insert(task, *rank);
                task += 1;
            }
        }
        self.running.insert(id);
        self.publish(id, events);
        for (rank, launch) in launches {
            self.order(rank, TaskRequest::Launch(Box::new(launch)));
        }
        for data in input {
            self.send_input(id, data);
        }
        if task == 0 {
            self.finish(id);
        }
    }

    /// Sends standard input to all tasks of a job; it is kept until they start.
    pub(super) fn send_input(&mut self, id: JobId, data: Bytes) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.state < JobState::Run {
            job.early_input.push(data);
            return;
        }
        for rank in job.ranks().iter() {
            let order = TaskRequest::Input { run: TaskOwner::Job(id), data: data.clone() };
            self.order(rank, order);
        }
    }

    /// Handles a broker's report about its tasks.
    pub(super) fn handle_report(&mut self, rank: u32, report: Report) {
        let run = match &report {
            Report::Output { run, .. }
            | Report::Notice { run, .. }
            | Report::Failed { run, .. }
            | Report::Refused { run, .. }
            | Report::Opened { run, .. }
            | Report::Exited { run, .. }
            | Report::Closed { run } => *run,
        };
        let id = match run {
            TaskOwner::Job(id) => id,
            TaskOwner::Exec(number) => return self.exec_report(number, report),
        };
        match report {
            Report::Output { task, stream, data, .. } => self.output(id, task, stream, data),
            Report::Notice { text, .. } => {
                let Some(job) = self.jobs.get_mut(&id) else { return };
                let index = job.allocation.iter().position(|share| share.rank == rank).unwrap_or(0);
                let seconds = self.now - job.time(JobState::New).unwrap_or(self.now);
                let notice = format!("{seconds:.3}s: flux-shell[{index}]: {text}");
                self.publish(id, [Reply::Notice(notice)]);
            }
            Report::Failed { task, host, error, code, .. } => {
                let note = format!("task {task} (host {host}): start failed: {error}");
                let text = format!("FATAL: {note}");
                self.handle_report(rank, Report::Notice { run, text });
                self.raise(id, "exec", 0, &note);
                self.task_exited(id, task, code);
            }
            Report::Opened { files, .. } => {
                let Some(job) = self.jobs.get(&id) else { return };
                let events = redirection_notices(job.submission.shape.task_count(), &files);
                self.publish(id, events);
            }
            Report::Refused { error, .. } => {
                let note = format!("shell_init: {error}");
                self.handle_report(rank, Report::Notice { run, text: format!("FATAL: {note}") });
                self.fail_shell(id, "exec", &note);
                self.abandon_tasks(id, rank);
            }
            Report::Exited { task, status, .. } => self.task_exited(id, task, exit_code(status)),
            Report::Closed { .. } => self.finish(id),
        }
    }

    fn output(&mut self, id: JobId, task: u32, stream: Stream, data: Bytes) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let [out, error] = &job.submission.files;
        let file = if stream == Stream::Out { out } else { error };
        if file.is_some() {
            let data = if job.submission.label { labelled(task, &data) } else { data };
            let Some(first) = job.allocation.first().map(|share| share.rank) else { return };
            return self.order(first, TaskRequest::Write { run: TaskOwner::Job(id), stream, data });
        }
        self.publish(id, [Reply::Output { task, stream, data }]);
    }

    /// Adds replies to a job's history and sends them to its watchers.
    pub(super) fn publish(&mut self, id: JobId, replies: impl IntoIterator<Item = Reply>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for reply in replies {
            if !matches!(reply, Reply::Done) {
                job.add_to_history(&reply);
            }
            let is_output = matches!(reply, Reply::Output { .. } | Reply::Notice(_));
            for watcher in job.watchers.iter().filter(|watcher| watcher.output || !is_output) {
                let (origin, tag) = (watcher.origin, watcher.tag);
                self.actions.push(Action::Reply { origin, tag, reply: reply.clone() });
            }
        }
    }

    /// The next FLUID: milliseconds since the start, and a sequence number (RFC 19).
    fn next_id(&mut self) -> JobId {
        let milliseconds = ((self.now - self.start) * 1000.0).max(1.0) as u64;
        self.last_id = (milliseconds << 24).max(self.last_id + 1);
        JobId::from(self.last_id)
    }
}

/// Flux's exit code for a wait status: the exit code, or 128 plus the signal.
pub fn exit_code(status: i32) -> i32 {
    match status & 0x7f {
        0 => status >> 8 & 0xff,
        signal => 128 + signal,
    }
}

/// Prefixes each line with the rank of its task.
fn labelled(task: u32, data: &Bytes) -> Bytes {
    let mut lines = Vec::new();
    for line in data.0.split_inclusive(|byte| *byte == b'\n') {
        lines.extend_from_slice(format!("{task}: ").as_bytes());
        lines.extend_from_slice(line);
    }
    Bytes(lines)
}

pub(super) fn owned<const N: usize>(context: [(&str, Value); N]) -> Vec<(String, Value)> {
    context.map(|(key, value)| (key.to_owned(), value)).into()
}
