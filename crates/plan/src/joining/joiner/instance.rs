//! The lender's instance, as one of its joiners observes it.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_flux::{IdSet, RankList};
use flux_operator_wire::{BURST_LABEL, BrokerFacts};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::leave::leave_seconds;
use crate::cluster::Cluster;
use crate::joining::claims::may_be_recorded_again;
use crate::joining::draining::is_drained;
use crate::joining::lease::{Held, LeaseNote, held_by, recorded};
use crate::joining::lender::{LenderView, allows, has_lease, lender_of};
use crate::joining::permission::booted_cluster;
use crate::last_report::may_still_report;
use crate::observed::{Observed, completion_index, is_terminating};
use crate::stamp;
use crate::status::{finished_at, is_ready};
use crate::time::seconds_after;
use crate::verdict::find;

/// The instance of a lender, as far as it matters to one joiner.
pub(super) struct Instance<'a> {
    pub(super) view: &'a LenderView,
    pub(super) cluster: Cluster,
    /// The lender's Job.
    pub(super) job: &'a Job,
    pub(super) table: String,
    pub(super) held: Held,
    /// The lead is up and takes brokers.
    pub(super) is_ready: bool,
    pub(super) is_suspended: bool,
}

/// Why there is no instance to join.
pub(super) struct NoInstance {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// It is not known whether the instance exists: what has joined stays.
    pub(super) keeps_brokers: bool,
}

/// What the lender will do about the lease that a Job was created for, unless it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotedLease {
    /// Nothing: the Job was created for another instance.
    OtherInstance,
    /// Nothing: another joiner holds one of its ranks, or the joiner may not have ranks any more.
    Released,
    /// It will record it again.
    ToBeRecorded,
}

impl<'a> Instance<'a> {
    /// The lender's instance, or why there is none to join.
    pub(super) fn find(
        joiner: &MiniCluster,
        observed: &'a Observed,
    ) -> Result<Instance<'a>, NoInstance> {
        let none = |reason, message: &str| NoInstance {
            reason,
            message: message.to_owned(),
            keeps_brokers: false,
        };
        let unknown = |message: &str| NoInstance {
            keeps_brokers: true,
            ..none(Reason::LenderNotReady, message)
        };
        let Some(view) = &observed.lender else {
            return Err(match observed.undecodable.is_empty() {
                true => none(Reason::LenderMissing, "there is no MiniCluster of that name"),
                false => unknown("it cannot be decoded: its condition Accepted says why"),
            });
        };
        let lender = &view.minicluster;
        // Nothing else about a lender is shown where it does not allow it.
        let namespace = joiner.namespace().unwrap_or_default();
        if !allows(lender, &namespace) && !has_lease(lender, joiner) {
            let message = format!(
                "it does not allow namespace {namespace:?}: add it to its \
                 flux.bursting.allowedNamespaces"
            );
            return Err(none(Reason::NotAllowed, &message));
        }
        if lender.metadata.deletion_timestamp.is_some() {
            return Err(none(Reason::LenderMissing, "it is being deleted"));
        }
        if lender.spec.is_joiner() {
            let other = lender_of(lender).map(|other| other.shown_in(&namespace));
            let other = other.unwrap_or_else(|| "another cluster".to_owned());
            return Err(none(Reason::LenderIsJoiner, &format!("it joins {other} itself")));
        }
        if finished_at(lender).is_some() {
            return Err(none(Reason::LenderFinished, "it has finished"));
        }
        let job = view.job.as_deref().filter(|job| job.metadata.deletion_timestamp.is_none());
        let no_job = || none(Reason::LenderNotReady, "its Job does not exist yet");
        let job = job.ok_or_else(no_job)?;
        let cluster =
            booted_cluster(lender, Some(job)).ok_or_else(|| unknown("its manifest is refused"))?;
        if !stamp::can_lend(job) {
            let message = "an earlier version of the operator has started it, and it cannot lend \
                ranks: delete it and create it again";
            return Err(unknown(message));
        }
        let table = cluster.ranks.hash();
        let conditions = lender.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let ready = find(conditions, ConditionType::Ready);
        Ok(Instance {
            held: held_by(&joiner.uid().unwrap_or_default(), &table, lender),
            view,
            cluster,
            job,
            table,
            is_ready: ready.is_some_and(|ready| ready.status == "True"),
            is_suspended: job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)),
        })
    }

    /// What a Job for this instance notes.
    pub(super) fn note(&self, ranks: RankList) -> LeaseNote {
        let lender = &self.view.minicluster;
        LeaseNote {
            lender: lender.uid().unwrap_or_default(),
            job: self.job.uid().unwrap_or_default(),
            ranks,
            table: self.table.clone(),
            since: self.held.active_since.map(|since| since.to_string()).unwrap_or_default(),
        }
    }

    /// The ranks of the joiner's pods, by index: those that it gives back come last.
    pub(super) fn ranks(&self) -> RankList {
        self.held.active.followed_by(&self.held.leaving)
    }

    /// Until when jobs on ranks that are given back are waited for; `None`: until they have finished.
    pub(super) fn leave_until(&self, joiner: &MiniCluster) -> Option<Timestamp> {
        let since = self.held.leaving_since?;
        let deleted = joiner.metadata.deletion_timestamp.as_ref().map(|it| it.0);
        // A Burst becomes smaller without hurry, and deletes its joiner at the end of its lifetime.
        if deleted.is_none() && joiner.labels().contains_key(BURST_LABEL) {
            return None;
        }
        let since = deleted.map_or(since, |deleted| deleted.max(since));
        Some(seconds_after(since, leave_seconds(joiner)))
    }

    /// Whether the brokers of ranks that are given back may stop: no job runs there any more, or
    /// there is no lead to ask, or the time is up.
    pub(super) fn may_leave(&self, joiner: &MiniCluster, observed: &Observed) -> bool {
        let Some(since) = self.held.leaving_since else { return false };
        let now = observed.now;
        let report = self.view.report.as_ref();
        let drained = report.and_then(|report| report.state.drained.as_ref());
        // A lead may be unready for a moment and still run jobs, also while no operator runs.
        let reports = match report {
            Some(report) => !report.is_stale(now),
            None => self.online_before_restart(observed).is_some(),
        };
        let is_led = (self.is_ready || reports) && !self.is_suspended;
        !is_led
            || is_drained(drained, since, &self.held.leaving.to_set())
            || self.leave_until(joiner).is_some_and(|until| now >= until)
    }

    /// Which of the joiner's ranks are online. Without a fresh report: those of its ready pods, and
    /// those that the lead had reported before the operator was restarted.
    pub(super) fn online(&self, observed: &Observed) -> IdSet {
        let report = self.view.report.as_ref().filter(|report| !report.is_stale(observed.now));
        let reported = report.and_then(|report| report.state.online.as_ref());
        let online = reported.cloned().unwrap_or_else(|| {
            let ready = observed.job_pods().filter(|pod| is_ready(pod) && !is_terminating(pod));
            let indexes = ready.filter_map(completion_index);
            let ranks = indexes.filter_map(|index| self.ranks().nth(index as usize));
            ranks
                .collect::<IdSet>()
                .union(&self.online_before_restart(observed).unwrap_or_default())
        });
        online.intersection(&self.ranks().to_set())
    }

    /// The ranks that the lead has reported online to an earlier operator, while it may still report
    /// to this one: a restart of the operator changes no status.
    pub(super) fn online_before_restart(&self, observed: &Observed) -> Option<IdSet> {
        let may_report = may_still_report(observed.watching_since, observed.now);
        let reported = &self.view.minicluster.status.as_ref()?.online;
        let is_awaited = self.view.report.is_none() && may_report && !reported.is_empty();
        reported.parse().ok().filter(|_| is_awaited)
    }

    /// What the lead has reported about its own broker.
    pub(super) fn lead(&self) -> Option<&BrokerFacts> {
        self.view.report.as_ref()?.state.lead.as_ref()
    }

    /// What became of the lease that a joiner's Job was created for.
    pub(super) fn noted_lease(&self, joiner: &MiniCluster, job: &Job) -> NotedLease {
        let this = self.note(RankList::default());
        let Some(note) = LeaseNote::of(job).filter(|note| note.is_same_instance(&this)) else {
            return NotedLease::OtherInstance;
        };
        let uid = joiner.uid().unwrap_or_default();
        let others = recorded(&self.view.minicluster);
        let mut others = others.iter().filter(|record| record.holder.uid != uid);
        let noted = note.ranks.to_set();
        let is_taken = others.any(|record| !record.ranks.to_set().intersection(&noted).is_empty());
        match is_taken || !may_be_recorded_again(&self.view.minicluster, joiner, job) {
            true => NotedLease::Released,
            false => NotedLease::ToBeRecorded,
        }
    }
}
