//! The measurements of bring-up, by name and as a table.

use serde::Serialize;

use crate::summary::{Measures, Samples, table};

/// Measurements, in seconds.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(super) size: u32,
    pub(super) rounds: usize,
    /// A Job with the same pods that runs `true`: until its lead has terminated.
    pub(super) bare_job: Samples,
    /// The same, until the Job is complete.
    pub(super) bare_job_complete: Samples,
    /// Flux alone, started on this machine.
    pub(super) flux_alone: Samples,
    pub(super) operators: Vec<OperatorFigures>,
}

#[derive(Serialize, Default)]
pub(super) struct OperatorFigures {
    pub(super) name: String,
    pub(super) lead_done: Samples,
    pub(super) job_complete: Samples,
    pub(super) says_finished: Samples,
    /// Deleting a cluster whose command runs, until its pods are deleted.
    pub(super) delete: Samples,
    /// Like `lead_done`, for clusters with a new name each.
    pub(super) new_name: Samples,
    /// The same for clusters with the same name, each created after the previous one was deleted.
    pub(super) same_name: Samples,
    /// From deleting the lead's pod of an interactive cluster until the cluster is Ready again.
    pub(super) lead_lost: Samples,
    /// Rounds that did not finish in time.
    pub(super) lost: u32,
    /// Whether the operator never reported that a MiniCluster has finished.
    pub(super) silent: bool,
}

impl OperatorFigures {
    pub(super) fn merge(&mut self, other: OperatorFigures) {
        let OperatorFigures {
            name: _,
            lead_done,
            job_complete,
            says_finished,
            delete,
            new_name,
            same_name,
            lead_lost,
            lost,
            silent,
        } = other;
        self.lead_done.merge(lead_done);
        self.job_complete.merge(job_complete);
        self.says_finished.merge(says_finished);
        self.delete.merge(delete);
        self.new_name.merge(new_name);
        self.same_name.merge(same_name);
        self.lead_lost.merge(lead_lost);
        self.lost += lost;
        self.silent = silent;
    }
}

impl Figures {
    /// The seconds until the lead is done that neither the pods nor Flux account for.
    fn own_share(&self, operator: &OperatorFigures) -> Option<f64> {
        Some(operator.lead_done.median()? - self.bare_job.median()? - self.flux_alone.median()?)
    }

    /// All measurements by name, including ratios to the floor (a bare Job plus Flux alone) and to
    /// other operators.
    pub(crate) fn measures(&self) -> Measures {
        let mut measures = Measures::new();
        let floor =
            self.bare_job.median().zip(self.flux_alone.median()).map(|(job, flux)| job + flux);
        for operator in &self.operators {
            let mut set = |name: &str, value: Option<f64>| {
                let name = format!("bringup.{}.{name}", operator.name);
                measures.extend(value.map(|value| (name, value)));
            };
            let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
            let lead_done = operator.lead_done.median();
            set("lead_done", lead_done);
            set("lead_done_over_floor", ratio(lead_done, floor));
            set("worst_over_median", ratio(operator.lead_done.worst(), lead_done));
            set("own_share", self.own_share(operator));
            set("job_complete", operator.job_complete.median());
            set("says_finished", operator.says_finished.median());
            set("delete", operator.delete.median());
            let (new_name, same_name) = (&operator.new_name, &operator.same_name);
            set("same_name_over_new_name", ratio(same_name.median(), new_name.median()));
            set("lead_lost", operator.lead_lost.median());
            set("lost", Some(f64::from(operator.lost)));
            for other in self.operators.iter().filter(|other| other.name != operator.name) {
                let over = |what: &str| format!("{what}_over.{}", other.name);
                set(&over("lead_done"), ratio(lead_done, other.lead_done.median()));
                set(&over("delete"), ratio(operator.delete.median(), other.delete.median()));
            }
        }
        measures
    }

    /// The measurements as a table.
    pub(crate) fn table(&self) -> String {
        let names = self.operators.iter().map(|operator| operator.name.clone());
        let mut rows: Vec<Vec<String>> = vec![
            ["", "bare Job", "Flux alone"].map(str::to_owned).into_iter().chain(names).collect(),
        ];
        let dash = || "-".to_owned();
        let mut row =
            |what: &str, bare: String, flux: String, cell: &dyn Fn(&OperatorFigures) -> String| {
                let cells = self.operators.iter().map(cell);
                rows.push([what.to_owned(), bare, flux].into_iter().chain(cells).collect());
            };
        row("lead done", self.bare_job.text(2), self.flux_alone.text(2), &|each| {
            each.lead_done.text(2)
        });
        row("Job complete", self.bare_job_complete.text(2), dash(), &|each| {
            each.job_complete.text(2)
        });
        row("MiniCluster reports finished", dash(), dash(), &|each| each.says_finished.text(2));
        row("lead done − bare Job − Flux alone", dash(), dash(), &|each| {
            self.own_share(each).map_or_else(dash, |share| format!("{share:.2}"))
        });
        row("delete while running, until no pod is left", dash(), dash(), &|each| {
            each.delete.text(2)
        });
        row("in a row, a new name each: lead done", dash(), dash(), &|each| each.new_name.text(2));
        row("in a row, the same name: lead done", dash(), dash(), &|each| each.same_name.text(2));
        row("lead deleted, until Ready again", dash(), dash(), &|each| each.lead_lost.text(2));
        row("lost rounds", dash(), dash(), &|each| each.lost.to_string());
        let title = format!(
            "one MiniCluster of {}, {} rounds, seconds: median (worst)",
            self.size, self.rounds
        );
        table(&title, &rows)
    }
}
