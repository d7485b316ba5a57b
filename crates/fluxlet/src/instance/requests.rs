//! Requests of clients to the instance, and the replies.

use flux_operator_flux::{JobId, JobState};
use serde_json::json;

use super::job::Watcher;
use super::node::BrokerPresence;
use super::{Instance, Job, Origin};
use crate::bytes::Bytes;
use crate::message::{
    OverlayNode, QueueChange, QueueStatus, RefusalKind, Reply, Request, SchedulingStopped,
    UptimeStatus, Urgency,
};

/// Flux's default urgency.
const DEFAULT_URGENCY: u8 = 16;

impl Instance {
    pub(super) fn request(&mut self, origin: Origin, tag: u64, request: Request) {
        match request {
            Request::Submit(submission) => self.submit(origin, tag, *submission),
            Request::Watch { id, output, follow } => {
                self.watch(Watcher { origin, tag, output }, id, follow);
            }
            Request::Input { id, data } => self.input(origin, tag, id, data),
            Request::List { ids, states } => self.list(origin, tag, &ids, states),
            Request::Last => {
                for id in self.jobs.keys().rev().copied().collect::<Vec<_>>() {
                    self.reply(origin, tag, Reply::Id(id));
                }
                self.reply(origin, tag, Reply::Done);
            }
            Request::Info { id, key } => self.info(origin, tag, id, &key),
            Request::Raise { id, kind, severity, note } => {
                if self.check_active(origin, tag, id) {
                    self.raise(id, &kind, severity, &note);
                    self.reply(origin, tag, Reply::Done);
                }
            }
            Request::Kill { id, signal } => self.kill(origin, tag, id, signal),
            Request::Urgency { id, urgency } => self.set_urgency(origin, tag, id, urgency),
            Request::Memo { id, memo } => {
                if self.check_active(origin, tag, id) {
                    self.publish(id, [Job::event(self.now, "memo", memo)]);
                    self.reply(origin, tag, Reply::Done);
                }
            }
            Request::Wait { id } => self.wait(origin, tag, id),
            Request::Overlay => self.overlay(origin, tag),
            Request::Resources => {
                let nodes = self.nodes.iter().map(super::Node::to_resource).collect();
                self.reply(origin, tag, Reply::Resources(nodes));
                self.reply(origin, tag, Reply::Done);
            }
            Request::Drain { targets, reason, force } => {
                self.drain(origin, tag, &targets, reason, force);
            }
            Request::Undrain { targets } => self.undrain(origin, tag, &targets),
            Request::Queue(order) => self.change_queue(origin, tag, order),
            Request::QueueStatus => self.queue_status(origin, tag),
            Request::Idle { pending } => self.idle_waiters.push((pending, origin, tag)),
            Request::Exec { ranks, exclude, command, directory, environment } => {
                self.exec((origin, tag), (ranks, exclude), command, directory, environment);
            }
            Request::Put { id, key, value } => self.put(origin, tag, id, key, value),
            Request::Get { id, key } => self.get(origin, tag, id, key),
            Request::Uptime => self.uptime(origin, tag),
            // The broker answers these itself, because they are about the broker.
            Request::Attributes
            | Request::SetAttribute { .. }
            | Request::Configuration
            | Request::Log
            | Request::Shutdown => {
                self.refuse(origin, tag, RefusalKind::Invalid, "not a request for the instance");
            }
        }
    }

    fn refuse_unknown_job(&mut self, origin: Origin, tag: u64) {
        self.refuse(origin, tag, RefusalKind::NoSuchJob, "unknown job id");
    }

    /// Whether the job exists and is active; if not, an error is sent to the client.
    fn check_active(&mut self, origin: Origin, tag: u64, id: JobId) -> bool {
        match self.jobs.get(&id).map(|job| job.state) {
            None => self.refuse_unknown_job(origin, tag),
            Some(JobState::Inactive) => {
                self.refuse(origin, tag, RefusalKind::Inactive, "job is inactive");
            }
            Some(_) => return true,
        }
        false
    }

    /// Sends the job's history, and then new events if `follow`.
    fn watch(&mut self, watcher: Watcher, id: JobId, follow: bool) {
        let Watcher { origin, tag, output } = watcher;
        let Some(job) = self.jobs.get_mut(&id) else { return self.refuse_unknown_job(origin, tag) };
        let active = job.state != JobState::Inactive;
        let wanted = |reply: &&Reply| output || matches!(reply, Reply::Event(_));
        let mut past: Vec<Reply> = job.history.iter().filter(wanted).cloned().collect();
        if active && follow {
            job.watchers.push(watcher);
        } else {
            past.push(Reply::Done);
        }
        for reply in past {
            self.reply(origin, tag, reply);
        }
    }

    fn input(&mut self, origin: Origin, tag: u64, id: JobId, data: Bytes) {
        if self.check_active(origin, tag, id) {
            self.send_input(id, data);
            self.reply(origin, tag, Reply::Done);
        }
    }

    /// Lists pending jobs by priority, then running and inactive ones, the latest first.
    fn list(&mut self, origin: Origin, tag: u64, ids: &[JobId], states: u64) {
        if let Some(unknown) = ids.iter().find(|id| !self.jobs.contains_key(id)) {
            return self.refuse(origin, tag, RefusalKind::NoSuchJob, unknown.to_string());
        }
        let mut jobs: Vec<&Job> = match ids {
            [] => self.jobs.values().filter(|job| job.state.number() & states != 0).collect(),
            ids => ids.iter().filter_map(|id| self.jobs.get(id)).collect(),
        };
        if ids.is_empty() {
            let latest = |job: &Job| job.time(job.state).unwrap_or(0.0);
            jobs.sort_by(|one, other| {
                let (group, other_group) = (group(one.state), group(other.state));
                group.cmp(&other_group).then_with(|| match group {
                    0 => (other.priority(), one.id).cmp(&(one.priority(), other.id)),
                    _ => latest(other).total_cmp(&latest(one)).then(other.id.cmp(&one.id)),
                })
            });
        }
        let owner = self.settings.owner;
        let records: Vec<_> = jobs.into_iter().map(|job| job.to_record(owner)).collect();
        for record in records {
            self.reply(origin, tag, Reply::Job(Box::new(record)));
        }
        self.reply(origin, tag, Reply::Done);
    }

    fn info(&mut self, origin: Origin, tag: u64, id: JobId, key: &str) {
        let Some(job) = self.jobs.get(&id) else {
            return self.refuse(origin, tag, RefusalKind::NoSuchJob, "invalid job id");
        };
        let text = match key {
            "R" if !job.allocation.is_empty() => job.to_r(),
            "jobspec" => crate::json::spaced(&job.submission.to_jobspec()),
            "original jobspec" => crate::json::spaced(&job.submission.to_original()),
            _ => {
                let text = format!("{key}: key not found");
                return self.refuse(origin, tag, RefusalKind::NotFound, text);
            }
        };
        self.reply(origin, tag, Reply::Text(text));
        self.reply(origin, tag, Reply::Done);
    }

    fn kill(&mut self, origin: Origin, tag: u64, id: JobId, signal: i32) {
        if !self.check_active(origin, tag, id) {
            return;
        }
        if !self.running.contains(&id) {
            return self.refuse(origin, tag, RefusalKind::Invalid, "job is not running");
        }
        self.signal(id, signal);
        self.reply(origin, tag, Reply::Done);
    }

    fn set_urgency(&mut self, origin: Origin, tag: u64, id: JobId, urgency: Urgency) {
        if !self.check_active(origin, tag, id) {
            return;
        }
        let now = self.now;
        let owner = self.settings.owner;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let old = job.urgency;
        job.urgency = match urgency {
            Urgency::Value(value) => value,
            Urgency::Default => DEFAULT_URGENCY,
        };
        let context =
            vec![("userid".to_owned(), json!(owner)), ("urgency".to_owned(), json!(job.urgency))];
        let first = Job::event(now, "urgency", context);
        let priority = vec![("priority".to_owned(), json!(job.priority()))];
        let second = Job::event(now, "priority", priority);
        self.publish(id, [first, second]);
        self.enqueue(id);
        self.reply(origin, tag, Reply::Value(json!(old)));
        self.reply(origin, tag, Reply::Done);
    }

    fn wait(&mut self, origin: Origin, tag: u64, id: Option<JobId>) {
        let waitable = |job: &Job| job.submission.waitable && !job.is_reaped;
        let found = match id {
            Some(id) => self.jobs.get(&id).is_some_and(waitable),
            None => self.jobs.values().any(waitable),
        };
        if !found {
            let job = id.and_then(|id| self.jobs.get(&id));
            let text = match (id, job.map(|job| job.state)) {
                (None, _) => "there are no more waitable jobs",
                (Some(_), None | Some(JobState::Inactive)) => {
                    "invalid job id, or job may be inactive and not waitable"
                }
                (Some(_), Some(_)) => "job was not submitted with FLUX_JOB_WAITABLE",
            };
            return self.refuse(origin, tag, RefusalKind::NotWaitable, text);
        }
        self.waiters.push((id, origin, tag));
        self.reply_to_waiters();
    }

    /// Replies to the first client that waits for each finished waitable job.
    pub(super) fn reply_to_waiters(&mut self) {
        for (id, origin, tag) in std::mem::take(&mut self.waiters) {
            let finished = |job: &&mut Job| {
                job.submission.waitable
                    && !job.is_reaped
                    && job.state == JobState::Inactive
                    && id.is_none_or(|id| id == job.id)
            };
            let Some(job) = self.jobs.values_mut().find(finished) else {
                self.waiters.push((id, origin, tag));
                continue;
            };
            job.is_reaped = true;
            let note = job.fatal.as_ref().map_or_else(String::new, |fatal| {
                format!("Fatal exception type={} {}", fatal.kind, fatal.note)
            });
            // A job that never ran has no status; Flux reports it as failed.
            let status = job.status.unwrap_or(1 << 8);
            let reply = Reply::Waited { id: job.id, status, note };
            self.reply(origin, tag, reply);
            self.reply(origin, tag, Reply::Done);
        }
    }

    fn overlay(&mut self, origin: Origin, tag: u64) {
        let lost = self.nodes.iter().any(|node| node.presence == BrokerPresence::Lost);
        let full = self.nodes.iter().all(super::Node::is_online);
        let status = |node: &super::Node| match (node.rank, node.presence) {
            (0, BrokerPresence::Online) if full => "full",
            (0, BrokerPresence::Online) if lost => "degraded",
            (0, BrokerPresence::Online) => "partial",
            (_, BrokerPresence::Online) => "full",
            (_, BrokerPresence::Offline) => "offline",
            (_, BrokerPresence::Lost) => "lost",
        };
        let nodes = self.nodes.iter().map(|node| OverlayNode {
            rank: node.rank,
            host: node.host.clone(),
            status: status(node).to_owned(),
            note: node.note.to_owned(),
            since: self.now - node.since,
        });
        let reply = Reply::Overlay(nodes.collect());
        self.reply(origin, tag, reply);
        self.reply(origin, tag, Reply::Done);
    }

    fn change_queue(&mut self, origin: Origin, tag: u64, order: QueueChange) {
        match order {
            QueueChange::Start => self.stopped = None,
            QueueChange::Stop(reason) => self.stopped = Some(SchedulingStopped { reason }),
            QueueChange::Enable => self.disabled = None,
            QueueChange::Disable(reason) => self.disabled = Some(reason),
        }
        self.queue_status(origin, tag);
    }

    fn queue_status(&mut self, origin: Origin, tag: u64) {
        // A stopped queue has no alloc requests.
        let pending = if self.stopped.is_some() { 0 } else { self.queue.len() };
        let status = QueueStatus {
            disabled: self.disabled.clone(),
            stopped: self.stopped.clone(),
            pending: u32::try_from(pending).unwrap_or(u32::MAX),
            running: u32::try_from(self.running.len()).unwrap_or(u32::MAX),
        };
        self.reply(origin, tag, Reply::Queue(status));
        self.reply(origin, tag, Reply::Done);
    }

    fn put(&mut self, origin: Origin, tag: u64, id: JobId, key: String, value: String) {
        let Some(job) = self.jobs.get_mut(&id) else { return self.refuse_unknown_job(origin, tag) };
        let (ready, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut job.published_waiters)
            .into_iter()
            .partition(|(word, ..)| *word == key);
        job.published_waiters = rest;
        job.published.insert(key, value.clone());
        for (_, waiter, waiter_tag) in ready {
            self.reply(waiter, waiter_tag, Reply::Text(value.clone()));
            self.reply(waiter, waiter_tag, Reply::Done);
        }
        self.reply(origin, tag, Reply::Done);
    }

    fn get(&mut self, origin: Origin, tag: u64, id: JobId, key: String) {
        let Some(job) = self.jobs.get_mut(&id) else { return self.refuse_unknown_job(origin, tag) };
        match job.published.get(&key).cloned() {
            Some(value) => {
                self.reply(origin, tag, Reply::Text(value));
                self.reply(origin, tag, Reply::Done);
            }
            None => job.published_waiters.push((key, origin, tag)),
        }
    }

    fn uptime(&mut self, origin: Origin, tag: u64) {
        let count = |what: fn(&super::Node) -> bool| {
            u32::try_from(self.nodes.iter().filter(|node| what(node)).count()).unwrap_or(u32::MAX)
        };
        let status = UptimeStatus {
            state: "run".to_owned(),
            seconds: self.now - self.start,
            size: count(|_| true),
            offline: count(|node| !node.is_online()),
            drained: count(|node| node.drained.is_some()),
            owner: self.settings.owner,
            level: self.settings.level,
        };
        self.reply(origin, tag, Reply::Uptime(status));
        self.reply(origin, tag, Reply::Done);
    }
}

/// The order of groups in a list: pending, running, inactive.
fn group(state: JobState) -> u8 {
    match state {
        JobState::New | JobState::Depend | JobState::Priority | JobState::Sched => 0,
        JobState::Run | JobState::Cleanup => 1,
        JobState::Inactive => 2,
    }
}
