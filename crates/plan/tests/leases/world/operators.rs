//! What the operators observe, decide and write.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::queueing::merge_patch;
use flux_operator_plan::{JoinerView, LenderView, Observed, Outcome, QueryAnswer, decide, queries};
use flux_operator_testkit::merge;
use flux_operator_wire::Drain;
use kube::ResourceExt;

use super::instance::lender_pod;
use super::{Kind, LENDER, World, settings};

impl World {
    pub fn catch_up(&mut self, operator: usize, kind: Kind) {
        let (view, stored) = (&mut self.operators[operator].view, &self.stored);
        match kind {
            Kind::MiniClusters => view.miniclusters.clone_from(&stored.miniclusters),
            Kind::Jobs => view.jobs.clone_from(&stored.jobs),
            Kind::Pods => {
                view.joiner_pods.clone_from(&stored.joiner_pods);
                view.lender_pods.clone_from(&stored.lender_pods);
            }
        }
    }

    pub(super) fn catch_up_all(&mut self) {
        for operator in 0..self.operators.len() {
            Kind::ALL.into_iter().for_each(|kind| self.catch_up(operator, kind));
        }
    }

    /// The lead reports to an operator whose watches are current, which reconciles everything.
    pub fn round(&mut self, operator: usize) {
        self.report(operator, false);
        let catch_up = |world: &mut World| {
            Kind::ALL.into_iter().for_each(|kind| world.catch_up(operator, kind));
        };
        catch_up(self);
        self.reconcile_lender(operator, 99);
        for joiner in self.joiners() {
            catch_up(self);
            self.reconcile_joiner(operator, &joiner, 99);
        }
    }

    pub fn reconcile_lender(&mut self, operator: usize, crash_after: usize) {
        let view = &self.operators[operator].view;
        let Some(lender) = self.read(view, LENDER) else { return };
        let names = view.miniclusters.keys().filter(|name| *name != LENDER);
        let joiners = names.map(|name| JoinerView {
            minicluster: Arc::new(self.read(view, name).unwrap()),
            job: view.jobs.get(name).cloned().map(Arc::new),
        });
        let observed = Observed {
            job: view.jobs.get(LENDER).cloned().map(Arc::new),
            pods: view.lender_pods.values().map(|pod| Arc::new(lender_pod(pod))).collect(),
            joiners: joiners.collect(),
            report: self.operators[operator].report.clone(),
            invited: self.operators[operator].remote_joiners.invited.clone(),
            watching_since: "2025-01-01T00:00:00Z".parse().unwrap(),
            ..Observed::empty(self.now)
        };
        if let Some(work) = self.reconcile(&lender, observed, crash_after) {
            self.work = work;
        }
    }

    pub fn reconcile_joiner(&mut self, operator: usize, name: &str, crash_after: usize) {
        let view = &self.operators[operator].view;
        let Some(minicluster) = self.read(view, name) else { return };
        let observed = Observed {
            job: view.jobs.get(name).cloned().map(Arc::new),
            lender: self.lender(operator),
            watching_since: "2025-01-01T00:00:00Z".parse().unwrap(),
            ..Observed::empty(self.now)
        };
        self.reconcile(&minicluster, observed, crash_after);
    }

    /// The lender, as joiners and their agents are shown it.
    pub(super) fn lender(&self, operator: usize) -> Option<LenderView> {
        let view = &self.operators[operator].view;
        Some(LenderView {
            minicluster: Arc::new(self.read(view, LENDER)?),
            job: view.jobs.get(LENDER).cloned().map(Arc::new),
            report: self.operators[operator].report.clone(),
        })
    }

    /// Returns the work for the lead, if the operator gets so far.
    fn reconcile(
        &mut self,
        minicluster: &MiniCluster,
        mut observed: Observed,
        crash_after: usize,
    ) -> Option<Drain> {
        for query in queries(minicluster, &observed) {
            let reply = self.reply(minicluster, &query.subject);
            observed.add_answer(QueryAnswer::new(minicluster, query, Some(reply), self.now));
        }
        let decision = decide(minicluster, &observed, &settings());
        for (done, step) in decision.steps.iter().enumerate() {
            if done >= crash_after {
                return None;
            }
            self.apply(minicluster, step);
            if step.changes_self() {
                return decision.lead_work.clone();
            }
        }
        if crash_after < decision.steps.len() + 1 {
            return None;
        }
        let status = decision.conclude(&Outcome::all(&decision.steps)).status;
        let before = minicluster.status.clone().unwrap_or_default();
        let patch = status.and_then(|status| merge_patch(&before, &status));
        if let Some(patch) = patch.filter(|_| self.is_current(minicluster)) {
            self.edit(&minicluster.name_any(), |it| merge(&mut it["status"], &patch));
        }
        decision.lead_work
    }
}
