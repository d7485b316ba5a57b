//! What targets have shown lately. A Burst is reconciled whenever it, its MiniCluster or its jobs change,
//! also by the controller's own writes; its target is asked once a second at most.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use flux_operator_api::Burst;
use flux_operator_api::burst::BurstRun;
use flux_operator_plan::bursting::TargetView;
use flux_operator_service::lock::lock;
use kube::ResourceExt;
use tokio::time::Instant;

/// How long what a target has shown is used.
const MAX_AGE: Duration = Duration::from_secs(1);

/// What was shown for each Burst, by uid.
#[derive(Default)]
pub(crate) struct Views(Mutex<HashMap<String, Shown>>);

struct Shown {
    at: Instant,
    of: ShownOf,
    view: TargetView,
}

/// What the answer of a target depends on. When that changes, the target is asked again.
#[derive(PartialEq)]
struct ShownOf {
    generation: Option<i64>,
    is_deleting: bool,
    place: String,
    cluster_made: bool,
    run: Option<BurstRun>,
}

impl ShownOf {
    fn new(burst: &Burst) -> ShownOf {
        let status = burst.status.clone().unwrap_or_default();
        ShownOf {
            generation: burst.metadata.generation,
            is_deleting: burst.metadata.deletion_timestamp.is_some(),
            place: status.place,
            cluster_made: status.cluster_made,
            run: status.run,
        }
    }
}

impl Views {
    /// What the target of a Burst has shown, if it was asked a moment ago.
    pub(crate) fn get(&self, burst: &Burst) -> Option<TargetView> {
        let shown = lock(&self.0);
        let shown = shown.get(&burst.uid()?)?;
        let is_current = shown.at.elapsed() < MAX_AGE && shown.of == ShownOf::new(burst);
        is_current.then(|| shown.view.clone())
    }

    /// The target of a Burst was asked at this time, and has shown this.
    pub(crate) fn insert(&self, burst: &Burst, at: Instant, view: TargetView) {
        let mut shown = lock(&self.0);
        shown.retain(|_, it| it.at.elapsed() < MAX_AGE);
        if let Some(uid) = burst.uid() {
            shown.insert(uid, Shown { at, of: ShownOf::new(burst), view });
        }
    }

    /// Something is changed at the target of a Burst.
    pub(crate) fn forget(&self, burst: &Burst) {
        lock(&self.0).remove(&burst.uid().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn burst(uid: &str) -> Burst {
        let mut burst = Burst::new("b", Default::default());
        burst.metadata.uid = Some(uid.to_owned());
        burst
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_status_does_not_ask_the_target_again_before_a_second_is_over() {
        let (views, view) = (Views::default(), TargetView { nodes: 3, ..TargetView::default() });
        let mut one = burst("one");
        assert_eq!(views.get(&one), None);
        views.insert(&one, Instant::now(), view.clone());
        one.status.get_or_insert_default().phase = "Preparing".into();
        assert_eq!(views.get(&one), Some(view));
        assert_eq!(views.get(&burst("other")), None);
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(views.get(&one), None);
        views.insert(&burst("other"), Instant::now(), TargetView::default());
        assert_eq!(lock(&views.0).len(), 1, "the old one is forgotten");
    }

    #[tokio::test]
    async fn a_burst_that_is_changed_and_one_whose_target_was_changed_is_asked_about() {
        let views = Views::default();
        let one = burst("one");
        let changes: [fn(&mut Burst); 3] = [
            |burst| burst.metadata.generation = Some(2),
            |burst| burst.metadata.deletion_timestamp = Some(Time(Timestamp::now())),
            |burst| burst.status.get_or_insert_default().cluster_made = true,
        ];
        views.insert(&one, Instant::now(), TargetView::default());
        for change in changes {
            let mut changed = one.clone();
            change(&mut changed);
            assert_eq!(views.get(&changed), None);
        }
        assert!(views.get(&one).is_some());
        views.forget(&one);
        assert_eq!(views.get(&one), None);
    }
}
