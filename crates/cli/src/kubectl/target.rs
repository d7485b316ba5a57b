//! Resolves a name on the command line to a queue, a job or a MiniCluster.

use std::str::FromStr;

use anyhow::{Result, bail};
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::session::Session;

/// A kind that can precede a name, before a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Setup,
    Job,
    MiniCluster,
}

impl Kind {
    /// Its names, as kubectl accepts them: the first is the shortest, the last is for messages.
    fn words(self) -> [&'static str; 4] {
        match self {
            Kind::Setup => ["fs", "fluxsetup", "fluxsetups", "FluxSetup"],
            Kind::Job => ["fj", "fluxjob", "fluxjobs", "FluxJob"],
            Kind::MiniCluster => ["mc", "minicluster", "miniclusters", "MiniCluster"],
        }
    }

    const ALL: [Kind; 3] = [Kind::Setup, Kind::Job, Kind::MiniCluster];
}

/// A name, with or without its kind: `fs/team`, `team`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    kind: Option<Kind>,
    name: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let Some((word, name)) = text.split_once('/') else {
            return Ok(Target { kind: None, name: text.into() });
        };
        let kind = Kind::ALL.into_iter().find(|kind| kind.words().contains(&word));
        match kind {
            Some(_) if !name.is_empty() => Ok(Target { kind, name: name.into() }),
            _ => {
                Err("write fs/NAME for a queue, fj/NAME for a job, mc/NAME for a MiniCluster"
                    .into())
            }
        }
    }
}

/// The object that a name refers to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    Setup(Box<FluxSetup>),
    Job(Box<FluxJob>),
    MiniCluster(Box<MiniCluster>),
}

impl Found {
    fn kind(&self) -> Kind {
        match self {
            Found::Setup(_) => Kind::Setup,
            Found::Job(_) => Kind::Job,
            Found::MiniCluster(_) => Kind::MiniCluster,
        }
    }
}

/// Finds the object that a name refers to, among these kinds.
pub(super) async fn find(session: &Session, target: &Target, kinds: &[Kind]) -> Result<Found> {
    let asked: Vec<Kind> = match target.kind {
        Some(kind) => vec![kind],
        None => kinds.to_vec(),
    };
    let mut found = Vec::new();
    let mut refused = None;
    for kind in &asked {
        let looked = match kind {
            Kind::Setup => look(session, &target.name).await.map(|it| it.map(Found::Setup)),
            Kind::Job => look(session, &target.name).await.map(|it| it.map(Found::Job)),
            Kind::MiniCluster => {
                look(session, &target.name).await.map(|it| it.map(Found::MiniCluster))
            }
        };
        match looked {
            Ok(looked) => found.extend(looked),
            // A user who may not get queues can still mean a job.
            Err(error) => refused = Some(error),
        }
    }
    match (choose(found, &target.name)?, refused) {
        (Some(found), _) => Ok(found),
        (None, Some(error)) => {
            Err(session.explain(error, &format!("failed to get {:?}", target.name)).await)
        }
        (None, None) => Err(none(session, &target.name, &asked).await),
    }
}

async fn look<K>(session: &Session, name: &str) -> kube::Result<Option<Box<K>>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned,
    K: std::fmt::Debug,
{
    Ok(session.api::<K>().get_opt(name).await?.map(Box::new))
}

/// The intended object. The MiniCluster of a job with the same name is part of the job.
fn choose(mut found: Vec<Found>, name: &str) -> Result<Option<Found>> {
    if found.iter().any(|it| it.kind() == Kind::Job) {
        found.retain(|it| !matches!(it, Found::MiniCluster(made) if owner(made).is_some()));
    }
    if let [_, _, ..] = found.as_slice() {
        let words = found.iter().map(|it| it.kind().words());
        let (kinds, forms): (Vec<_>, Vec<_>) =
            words.map(|[short, .., kind]| (kind, format!("{short}/{name}"))).unzip();
        bail!(
            "{name:?} is the name of a {}\nhint: write {}",
            kinds.join(" and of a "),
            forms.join(" or ")
        );
    }
    let found = found.pop();
    if let Some(Found::MiniCluster(made)) = &found
        && let Some(job) = owner(made)
    {
        bail!("the MiniCluster {name:?} belongs to a job\nhint: write fj/{job}");
    }
    Ok(found)
}

/// The FluxJob that owns a MiniCluster.
fn owner(minicluster: &MiniCluster) -> Option<&str> {
    let mut owners = minicluster.owner_references().iter();
    owners.find(|owner| owner.kind == FluxJob::kind(&())).map(|owner| owner.name.as_str())
}

/// The error for a name that does not exist, with similar names.
async fn none(session: &Session, name: &str, asked: &[Kind]) -> anyhow::Error {
    let mut names = Vec::new();
    for kind in asked {
        let listed = match kind {
            Kind::Setup => names_of::<FluxSetup>(session).await,
            Kind::Job => names_of::<FluxJob>(session).await,
            Kind::MiniCluster => names_of::<MiniCluster>(session).await,
        };
        match listed {
            Ok(listed) => names.extend(listed),
            Err(error) => return session.explain(error, "failed to list objects").await,
        }
    }
    let kinds: Vec<&str> = asked.iter().map(|kind| kind.words()[3]).collect();
    session.none(&kinds.join(" or "), name, &names)
}

async fn names_of<K>(session: &Session) -> kube::Result<Vec<String>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned,
    K: std::fmt::Debug,
{
    let listed = session.api::<K>().list_metadata(&ListParams::default()).await?;
    Ok(listed.items.iter().map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::minicluster;
    use super::*;
    use serde_json::json;

    fn job() -> Found {
        Found::Job(Box::new(FluxJob::new("fs", serde_json::from_value(json!({})).unwrap())))
    }

    fn setup() -> Found {
        Found::Setup(Box::new(FluxSetup::new("fs", serde_json::from_value(json!({})).unwrap())))
    }

    fn made(owned: bool) -> Found {
        let mut made = minicluster(json!({ "containers": [{}] }), json!({}));
        if owned {
            let owner = json!([{ "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxJob", "name": "fs", "uid": "1" }]);
            made.metadata.owner_references = serde_json::from_value(owner).unwrap();
        }
        Found::MiniCluster(Box::new(made))
    }

    #[test]
    fn a_kind_may_stand_before_the_name() {
        let parsed = |text: &str| text.parse::<Target>().map(|target| (target.kind, target.name));
        assert_eq!(parsed("team"), Ok((None, "team".into())));
        for word in ["fs", "fluxsetup", "fluxsetups", "FluxSetup"] {
            assert_eq!(parsed(&format!("{word}/a")), Ok((Some(Kind::Setup), "a".into())));
        }
        assert_eq!(parsed("fj/a"), Ok((Some(Kind::Job), "a".into())));
        assert!(parsed("pod/a").unwrap_err().contains("fs/NAME"));
        assert!(parsed("fj/").is_err());
    }

    #[test]
    fn a_name_of_several_things_is_an_error_that_says_how_to_write_it() {
        let error = choose(vec![setup(), job()], "fs").unwrap_err().to_string();
        assert_eq!(
            error,
            "\"fs\" is the name of a FluxSetup and of a FluxJob\nhint: write fs/fs or fj/fs"
        );
        assert_eq!(choose(vec![job(), made(true)], "fs").unwrap(), Some(job()));
        assert!(choose(vec![job(), made(false)], "fs").is_err());
        let error = choose(vec![made(true)], "fs").unwrap_err().to_string();
        assert!(error.ends_with("hint: write fj/fs"), "{error}");
        assert_eq!(choose(Vec::new(), "fs").unwrap(), None);
    }
}
