//! Waits for a Burst.

use anyhow::{Result, anyhow};
use flux_operator_api::Burst;
use flux_operator_api::burst::BurstConditionType;
use kube::ResourceExt;

use super::state::needs_user;
use crate::kubectl::session::Session;
use crate::kubectl::watch::{WatchedState, watch_object};
use crate::print;

/// What a Burst does that the burst controller has not processed.
const WAITING_FOR_CONTROLLER: &str = "waiting for the burst controller";

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// All its nodes have joined, or its job has finished in an instance of its own.
    Ready,
    /// It is deleted, and so is everything that was created for it.
    GivenBack,
}

/// How far a Burst is on the way to a goal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Reached,
    /// It is not there yet; with what it is doing, in words.
    Waits(String),
    /// It does not get there by itself: why, and what to do.
    Stuck {
        message: String,
        hint: String,
    },
}

/// Waits until a Burst has reached a goal. Fails if only a user can change that it does not. What it
/// is doing is printed on standard error.
pub(super) async fn wait(session: &Session, burst: &Burst, goal: Goal) -> Result<()> {
    let name = burst.name_any();
    let mut printed = String::new();
    let watched = watch_object(session.api::<Burst>(), burst, |observed| {
        let now = match observed {
            WatchedState::Current(now) => Some(now),
            WatchedState::Deleted(_) => None,
        };
        match progress(now.as_ref(), goal) {
            Progress::Reached => Some(Ok(())),
            Progress::Stuck { message, hint } => Some(Err((message, hint))),
            Progress::Waits(doing) => {
                if doing != printed {
                    print::message(format_args!("{name}: {doing}"));
                    printed = doing;
                }
                None
            }
        }
    });
    watched.await?.map_err(|(message, hint)| {
        anyhow!("Burst {name:?} {message}\nhint: {}", session.remedy(&hint, &name))
    })
}

/// How far a Burst is; `None` is one that was deleted.
fn progress(burst: Option<&Burst>, goal: Goal) -> Progress {
    let Some(burst) = burst else {
        return match goal {
            Goal::GivenBack => Progress::Reached,
            Goal::Ready => Progress::Stuck {
                message: "was given back".to_owned(),
                hint: "request another one".to_owned(),
            },
        };
    };
    let status = burst.status.clone().unwrap_or_default();
    if let Some(problem) = needs_user(&status.conditions) {
        let what = match goal {
            Goal::Ready => "does not become ready",
            Goal::GivenBack => "cannot be given back",
        };
        let message = format!("{what}: {}", problem.message);
        return Progress::Stuck { message, hint: problem.remedy.to_owned() };
    }
    let is_deleting = burst.metadata.deletion_timestamp.is_some();
    let kind = match burst.is_isolated() {
        true => BurstConditionType::Finished,
        false => BurstConditionType::Ready,
    };
    let ready = status.condition(kind);
    match goal {
        Goal::Ready if is_deleting => Progress::Stuck {
            message: "is being given back".to_owned(),
            hint: "request another one".to_owned(),
        },
        Goal::Ready if ready.is_some_and(|it| it.status == "True") => Progress::Reached,
        // Another Burst runs the job: this one stays as it is until its record is deleted.
        Goal::Ready if burst.is_record() => Progress::Stuck {
            message: format!(
                "does not run the job: {}",
                status.run.map(|run| run.message).unwrap_or_default()
            ),
            hint: format!(
                "`kubectl minicluster jobs {}` shows the state of the job",
                burst.spec.cluster
            ),
        },
        Goal::Ready => match ready {
            Some(ready) => Progress::Waits(format!("{}: {}", ready.reason, ready.message)),
            None => Progress::Waits(WAITING_FOR_CONTROLLER.to_owned()),
        },
        Goal::GivenBack => match status.condition(BurstConditionType::GivingBack) {
            Some(it) if it.status == "True" => {
                Progress::Waits(format!("{}: {}", it.reason, it.message))
            }
            _ => Progress::Waits(WAITING_FOR_CONTROLLER.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{burst, condition};
    use super::*;
    use serde_json::json;

    fn with(conditions: &[[&str; 4]]) -> Burst {
        let conditions: Vec<_> =
            conditions.iter().map(|[a, b, c, d]| condition(a, b, c, d)).collect();
        burst("b", "", json!({ "conditions": conditions }))
    }

    fn waits(text: &str) -> Progress {
        Progress::Waits(text.to_owned())
    }

    #[test]
    fn a_burst_is_waited_for_until_it_is_ready() {
        let joining = with(&[["Ready", "False", "Joining", "1 of 2 brokers have joined"]]);
        let doing = waits("Joining: 1 of 2 brokers have joined");
        assert_eq!(progress(Some(&joining), Goal::Ready), doing);
        let ready = with(&[
            ["Ready", "True", "Joined", ""],
            ["GivingBack", "False", "InUse", "it is not being given back"],
        ]);
        assert_eq!(progress(Some(&ready), Goal::Ready), Progress::Reached);
        let unprocessed = waits(WAITING_FOR_CONTROLLER);
        assert_eq!(progress(Some(&with(&[])), Goal::Ready), unprocessed);
        // What is retried may still succeed.
        let retried = with(&[["Ready", "False", "TargetUnreachable", "no answer"]]);
        assert_eq!(progress(Some(&retried), Goal::Ready), waits("TargetUnreachable: no answer"));
    }

    #[test]
    fn the_wait_ends_if_only_a_user_can_help() {
        let blocked = with(&[
            ["CredentialsAccepted", "False", "CredentialsMissing", "there is no Secret \"gke\""],
            ["Ready", "False", "CredentialsMissing", "there is no Secret \"gke\""],
        ]);
        for (goal, what) in
            [(Goal::Ready, "does not become ready"), (Goal::GivenBack, "cannot be given back")]
        {
            let Progress::Stuck { message, hint } = progress(Some(&blocked), goal) else {
                panic!("{goal:?}")
            };
            let expected = format!("{what}: CredentialsMissing: there is no Secret \"gke\"");
            assert_eq!(message, expected);
            assert!(hint.starts_with("Create the Secret"), "{hint}");
        }
        let mut leaving = with(&[["Ready", "True", "Joined", ""]]);
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        for gone in [Some(&leaving), None] {
            assert!(matches!(progress(gone, Goal::Ready), Progress::Stuck { .. }), "{gone:?}");
        }
    }

    #[test]
    fn a_run_that_another_burst_has_taken_is_not_waited_for() {
        let run = |run: serde_json::Value, status: &str| {
            let finished = condition("Finished", status, "GivingBack", "");
            let mut burst = burst("b", "", json!({ "conditions": [finished], "run": run }));
            burst.spec.isolated_job = "f2".to_owned();
            progress(Some(&burst), Goal::Ready)
        };
        let message = "Burst a runs this job";
        let refused = run(json!({ "state": "Refused", "message": message }), "False");
        let expected = Progress::Stuck {
            message: format!("does not run the job: {message}"),
            hint: "`kubectl minicluster jobs fs` shows the state of the job".to_owned(),
        };
        assert_eq!(refused, expected);
        assert!(matches!(run(json!({ "state": "Finishing" }), "False"), Progress::Waits(_)));
        assert_eq!(run(json!({ "state": "Failed" }), "True"), Progress::Reached);
    }

    #[test]
    fn a_burst_is_given_back_when_it_is_deleted() {
        let draining = with(&[["GivingBack", "True", "Draining", "jobs may finish"]]);
        assert_eq!(progress(Some(&draining), Goal::GivenBack), waits("Draining: jobs may finish"));
        assert_eq!(progress(None, Goal::GivenBack), Progress::Reached);
    }
}
