//! Resolves a name on the command line to a queue, a job or a MiniCluster.

use std::str::FromStr;

use anyhow::{Result, bail};
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::session::Session;

/// A kind that can precede a name, as in `fs/NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Setup,
    Job,
    MiniCluster,
}

impl ObjectKind {
    /// Its names, as kubectl accepts them: the first is the shortest, the last is for messages.
    fn names(self) -> [&'static str; 4] {
        match self {
            ObjectKind::Setup => ["fs", "fluxsetup", "fluxsetups", "FluxSetup"],
            ObjectKind::Job => ["fj", "fluxjob", "fluxjobs", "FluxJob"],
            ObjectKind::MiniCluster => ["mc", "minicluster", "miniclusters", "MiniCluster"],
        }
    }

    const ALL: [ObjectKind; 3] = [ObjectKind::Setup, ObjectKind::Job, ObjectKind::MiniCluster];
}

/// A name, with or without its kind: `fs/team`, `team`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    kind: Option<ObjectKind>,
    name: String,
}

impl Target {
    /// The name of the MiniCluster that it refers to: that of a job has the job's name.
    pub(super) fn minicluster_name(&self) -> Result<&str> {
        match self.kind {
            Some(ObjectKind::Setup) => {
                bail!("{:?} is a queue, not a MiniCluster\nhint: write mc/NAME", self.name)
            }
            Some(ObjectKind::Job | ObjectKind::MiniCluster) | None => Ok(&self.name),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let Some((word, name)) = text.split_once('/') else {
            return Ok(Target { kind: None, name: text.into() });
        };
        let kind = ObjectKind::ALL.into_iter().find(|kind| kind.names().contains(&word));
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
pub(super) enum FoundObject {
    Setup(Box<FluxSetup>),
    Job(Box<FluxJob>),
    MiniCluster(Box<MiniCluster>),
}

impl FoundObject {
    fn kind(&self) -> ObjectKind {
        match self {
            FoundObject::Setup(_) => ObjectKind::Setup,
            FoundObject::Job(_) => ObjectKind::Job,
            FoundObject::MiniCluster(_) => ObjectKind::MiniCluster,
        }
    }
}

/// Finds the object that a name refers to, among these kinds.
pub(super) async fn find(
    session: &Session,
    target: &Target,
    kinds: &[ObjectKind],
) -> Result<FoundObject> {
    let requested: Vec<ObjectKind> = match target.kind {
        Some(kind) => vec![kind],
        None => kinds.to_vec(),
    };
    let mut found = Vec::new();
    let mut refused = None;
    for kind in &requested {
        let result = match kind {
            ObjectKind::Setup => {
                get(session, &target.name).await.map(|it| it.map(FoundObject::Setup))
            }
            ObjectKind::Job => get(session, &target.name).await.map(|it| it.map(FoundObject::Job)),
            ObjectKind::MiniCluster => {
                get(session, &target.name).await.map(|it| it.map(FoundObject::MiniCluster))
            }
        };
        match result {
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
        (None, None) => Err(not_found(session, &target.name, &requested).await),
    }
}

async fn get<K>(session: &Session, name: &str) -> kube::Result<Option<Box<K>>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned,
    K: std::fmt::Debug,
{
    Ok(session.api::<K>().get_opt(name).await?.map(Box::new))
}

/// The intended object. The MiniCluster of a job with the same name is part of the job.
fn choose(mut found: Vec<FoundObject>, name: &str) -> Result<Option<FoundObject>> {
    if found.iter().any(|it| it.kind() == ObjectKind::Job) {
        found.retain(
            |it| !matches!(it, FoundObject::MiniCluster(minicluster) if owning_job(minicluster).is_some()),
        );
    }
    if let [_, _, ..] = found.as_slice() {
        let words = found.iter().map(|it| it.kind().names());
        let (kinds, forms): (Vec<_>, Vec<_>) =
            words.map(|[short, .., kind]| (kind, format!("{short}/{name}"))).unzip();
        bail!(
            "{name:?} is the name of a {}\nhint: write {}",
            kinds.join(" and of a "),
            forms.join(" or ")
        );
    }
    let found = found.pop();
    if let Some(FoundObject::MiniCluster(made)) = &found
        && let Some(job) = owning_job(made)
    {
        bail!("the MiniCluster {name:?} belongs to a job\nhint: write fj/{job}");
    }
    Ok(found)
}

/// The FluxJob that owns a MiniCluster.
fn owning_job(minicluster: &MiniCluster) -> Option<&str> {
    let mut owners = minicluster.owner_references().iter();
    owners.find(|owner| owner.kind == FluxJob::kind(&())).map(|owner| owner.name.as_str())
}

/// The error for a name that does not exist, with similar names.
async fn not_found(session: &Session, name: &str, requested: &[ObjectKind]) -> anyhow::Error {
    let mut names = Vec::new();
    for kind in requested {
        let listed = match kind {
            ObjectKind::Setup => names_of::<FluxSetup>(session).await,
            ObjectKind::Job => names_of::<FluxJob>(session).await,
            ObjectKind::MiniCluster => names_of::<MiniCluster>(session).await,
        };
        match listed {
            Ok(listed) => names.extend(listed),
            Err(error) => return session.explain(error, "failed to list objects").await,
        }
    }
    let kinds: Vec<&str> = requested.iter().map(|kind| kind.names()[3]).collect();
    session.not_found(&kinds.join(" or "), name, &names)
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

    fn job() -> FoundObject {
        FoundObject::Job(Box::new(FluxJob::new("fs", serde_json::from_value(json!({})).unwrap())))
    }

    fn setup() -> FoundObject {
        FoundObject::Setup(Box::new(FluxSetup::new(
            "fs",
            serde_json::from_value(json!({})).unwrap(),
        )))
    }

    fn minicluster_found(owned: bool) -> FoundObject {
        let mut made = minicluster(json!({ "containers": [{}] }), json!({}));
        if owned {
            let owner = json!([{ "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxJob", "name": "fs", "uid": "1" }]);
            made.metadata.owner_references = serde_json::from_value(owner).unwrap();
        }
        FoundObject::MiniCluster(Box::new(made))
    }

    #[test]
    fn a_name_may_have_its_kind_before_it() {
        let parsed = |text: &str| text.parse::<Target>().map(|target| (target.kind, target.name));
        assert_eq!(parsed("team"), Ok((None, "team".into())));
        for word in ["fs", "fluxsetup", "fluxsetups", "FluxSetup"] {
            assert_eq!(parsed(&format!("{word}/a")), Ok((Some(ObjectKind::Setup), "a".into())));
        }
        assert_eq!(parsed("fj/a"), Ok((Some(ObjectKind::Job), "a".into())));
        assert!(parsed("pod/a").unwrap_err().contains("fs/NAME"));
        assert!(parsed("fj/").is_err());
        for (text, name) in
            [("a", Some("a")), ("mc/a", Some("a")), ("fj/a", Some("a")), ("fs/a", None)]
        {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.minicluster_name().ok(), name, "{text}");
        }
    }

    #[test]
    fn an_ambiguous_name_is_an_error_with_a_hint() {
        let error = choose(vec![setup(), job()], "fs").unwrap_err().to_string();
        assert_eq!(
            error,
            "\"fs\" is the name of a FluxSetup and of a FluxJob\nhint: write fs/fs or fj/fs"
        );
        assert_eq!(choose(vec![job(), minicluster_found(true)], "fs").unwrap(), Some(job()));
        assert!(choose(vec![job(), minicluster_found(false)], "fs").is_err());
        let error = choose(vec![minicluster_found(true)], "fs").unwrap_err().to_string();
        assert!(error.ends_with("hint: write fj/fs"), "{error}");
        assert_eq!(choose(Vec::new(), "fs").unwrap(), None);
    }
}
