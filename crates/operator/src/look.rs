//! Asks the API server what no watch tells: seldom, and only where a pod is missing or
//! does not start. When that is worth it is decided by [`questions`].

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::secret_name;
use flux_operator_plan::status::Trouble;
use flux_operator_plan::{About, Question, Seen, keys_lost, obstacle, questions, refusal};
use k8s_openapi::api::core::v1::{Event, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::errors::chain;

/// How often the same is asked: trouble is told within 10 s.
const INTERVAL: Duration = Duration::from_secs(8);

/// What was asked lately, by the MiniCluster's uid.
#[derive(Default)]
pub(crate) struct Looks(Mutex<HashMap<String, Vec<Look>>>);

/// An answer.
#[derive(Clone)]
struct Look {
    about: About,
    at: Timestamp,
    answer: Option<Trouble>,
}

/// What was heard.
#[derive(Default)]
pub(crate) struct Heard {
    /// What is wrong, if something is.
    pub(crate) trouble: Option<Trouble>,
    /// When to ask again, or for the first time.
    pub(crate) again: Option<Timestamp>,
}

impl Looks {
    /// Asks what is worth asking now. Answers are forgotten with their questions, and
    /// with the clusters that are not `there` any more.
    pub(crate) async fn ask(
        &self,
        client: &Client,
        minicluster: &MiniCluster,
        seen: &Seen,
        there: impl FnOnce() -> HashSet<String>,
    ) -> Heard {
        let uid = minicluster.uid().unwrap_or_default();
        let questions = questions(seen);
        let mut looks = self.lock().remove(&uid).unwrap_or_default();
        if questions.is_empty() {
            return Heard::default();
        }
        looks.retain(|look| questions.iter().any(|question| question.about == look.about));
        let mut again = Vec::new();
        for question in &questions {
            let kept = looks.iter().find(|look| look.about == question.about);
            let next = kept.map_or(question.worth_asking, |look| look.at + INTERVAL);
            if seen.now < next {
                again.push(next);
                continue;
            }
            let answer = answer(client, minicluster, question).await;
            looks.retain(|look| look.about != question.about);
            looks.push(Look { about: question.about.clone(), at: seen.now, answer });
            again.push(seen.now + INTERVAL);
        }
        let trouble = looks.iter().find_map(|look| look.answer.clone());
        if !looks.is_empty() {
            let there = there();
            let mut all = self.lock();
            all.retain(|uid, _| there.contains(uid));
            all.insert(uid, looks);
        }
        Heard { trouble, again: again.into_iter().min() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Look>>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// One question's answer. If nobody can say, nothing is wrong.
async fn answer(
    client: &Client,
    minicluster: &MiniCluster,
    question: &Question,
) -> Option<Trouble> {
    let namespace = minicluster.namespace().unwrap_or_default();
    let asked = match &question.about {
        About::Job { uid } => {
            let events = events(client, &namespace, uid).await;
            events.map(|events| refusal(&events, question.since))
        }
        About::Pod { name, uid } => match has_keys(client, minicluster).await {
            Ok(false) => Ok(Some(keys_lost(minicluster))),
            Ok(true) => events(client, &namespace, uid).await.map(|events| obstacle(name, &events)),
            Err(error) => Err(error),
        },
    };
    asked.unwrap_or_else(|error| {
        let (cluster, error) = (minicluster.name_any(), chain(&error));
        tracing::warn!(cluster, namespace, error, "failed to ask why a pod does not start");
        None
    })
}

/// The warnings about an object.
async fn events(client: &Client, namespace: &str, uid: &str) -> Result<Vec<Event>, kube::Error> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
    events.list(&about).await.map(|list| list.items)
}

/// Whether the Secret with the cluster's keys is there. What is in it is not read.
async fn has_keys(client: &Client, minicluster: &MiniCluster) -> Result<bool, kube::Error> {
    let namespace = minicluster.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    secrets.get_metadata_opt(&secret_name(minicluster)).await.map(|found| found.is_some())
}
