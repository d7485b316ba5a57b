//! The kinds that can be validated, one row each.

use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::schema::Schema;
use super::{Problem, beyond_schema, structure};
use crate::{Burst, BurstPolicy, FluxJob, FluxSetup, GROUP, MiniCluster, VERSION, crd};

/// A kind that can be validated without a cluster.
pub trait Validate: DeserializeOwned {
    /// The value of `kind`.
    const KIND: &'static str;

    /// Everything wrong with an object that its CRD accepts.
    fn check_beyond_schema(&self) -> Vec<Problem>;

    /// The schema that its objects are validated with.
    fn schema() -> &'static Schema;
}

impl Validate for MiniCluster {
    const KIND: &'static str = "MiniCluster";

    fn check_beyond_schema(&self) -> Vec<Problem> {
        beyond_schema::minicluster::check(self)
    }

    fn schema() -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::of(&crd::minicluster()));
        &SCHEMA
    }
}

impl Validate for FluxJob {
    const KIND: &'static str = "FluxJob";

    fn check_beyond_schema(&self) -> Vec<Problem> {
        beyond_schema::fluxjob::check(self)
    }

    fn schema() -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::of(&crd::fluxjob()));
        &SCHEMA
    }
}

impl Validate for FluxSetup {
    const KIND: &'static str = "FluxSetup";

    fn check_beyond_schema(&self) -> Vec<Problem> {
        beyond_schema::fluxsetup::check(self)
    }

    fn schema() -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::of(&crd::fluxsetup()));
        &SCHEMA
    }
}

impl Validate for BurstPolicy {
    const KIND: &'static str = "BurstPolicy";

    fn check_beyond_schema(&self) -> Vec<Problem> {
        beyond_schema::burst::check_policy(self)
    }

    fn schema() -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::of(&crd::burst_policy()));
        &SCHEMA
    }
}

impl Validate for Burst {
    const KIND: &'static str = "Burst";

    fn check_beyond_schema(&self) -> Vec<Problem> {
        beyond_schema::burst::check_burst(self)
    }

    fn schema() -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::of(&crd::burst()));
        &SCHEMA
    }
}

/// A kind whose type is not known at compile time.
pub(super) struct Kind {
    name: &'static str,
    pub(super) schema: fn() -> &'static Schema,
    pub(super) check_beyond_schema: fn(&Value) -> Result<Vec<Problem>, serde_json::Error>,
}

const KINDS: [Kind; 5] = [
    row::<MiniCluster>(),
    row::<FluxJob>(),
    row::<FluxSetup>(),
    row::<BurstPolicy>(),
    row::<Burst>(),
];

const fn row<K: Validate>() -> Kind {
    Kind {
        name: K::KIND,
        schema: K::schema,
        check_beyond_schema: |object| Ok(super::read::<K>(object)?.check_beyond_schema()),
    }
}

/// The kind of an object, or what is wrong with its `kind` and `apiVersion`.
pub(super) fn lookup(object: &Value) -> Result<&'static Kind, Problem> {
    let text = |field: &str| object[field].as_str();
    if !object.is_object() {
        return Err(Problem::new("document", "is not an object with apiVersion, kind and spec"));
    }
    let Some(name) = text("kind") else {
        return Err(Problem::new("kind", format!("is missing: write {}", names())));
    };
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        let nearest = structure::closest_name(name, KINDS.iter().map(|kind| kind.name));
        let hint = match nearest {
            Some(nearest) => format!("did you mean {nearest:?}?"),
            None => format!("expected {}", names()),
        };
        let message = format!("is {name:?}, which is not checked here: {hint}");
        return Err(Problem::new("kind", message));
    };
    let expected = format!("{GROUP}/{VERSION}");
    match text("apiVersion") {
        Some(version) if version == expected => Ok(kind),
        Some(version) => {
            Err(Problem::new("apiVersion", format!("is {version:?}: write {expected:?}")))
        }
        None => Err(Problem::new("apiVersion", format!("is missing: write {expected:?}"))),
    }
}

fn names() -> String {
    KINDS.map(|kind| kind.name).join(" or ")
}
