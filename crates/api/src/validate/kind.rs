//! The kinds that are checked, one row each.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Problem, beyond, structure};
use crate::embedded::embedded;
use crate::{FluxJob, FluxSetup, GROUP, MiniCluster, VERSION, crd};

/// A kind that can be checked without a cluster.
pub trait Checked: DeserializeOwned {
    /// The word that stands in `kind`.
    const KIND: &'static str;

    /// Everything wrong with an object that its CRD accepts.
    fn check_beyond_schema(&self) -> Vec<Problem>;

    /// The schema that its objects are checked with.
    fn schema() -> &'static Value;
}

impl Checked for MiniCluster {
    const KIND: &'static str = "MiniCluster";

    fn check_beyond_schema(&self) -> Vec<Problem> {
        beyond::minicluster::check(self)
    }

    fn schema() -> &'static Value {
        static SCHEMA: LazyLock<Value> = LazyLock::new(|| whole_schema(&crd::minicluster()));
        &SCHEMA
    }
}

impl Checked for FluxJob {
    const KIND: &'static str = "FluxJob";

    fn check_beyond_schema(&self) -> Vec<Problem> {
        beyond::fluxjob::check(self)
    }

    fn schema() -> &'static Value {
        static SCHEMA: LazyLock<Value> = LazyLock::new(|| whole_schema(&crd::fluxjob()));
        &SCHEMA
    }
}

impl Checked for FluxSetup {
    const KIND: &'static str = "FluxSetup";

    fn check_beyond_schema(&self) -> Vec<Problem> {
        beyond::fluxsetup::check(self)
    }

    fn schema() -> &'static Value {
        static SCHEMA: LazyLock<Value> = LazyLock::new(|| whole_schema(&crd::fluxsetup()));
        &SCHEMA
    }
}

/// A row of the table: a kind whose type is not known at compile time.
pub(super) struct Kind {
    name: &'static str,
    pub(super) schema: fn() -> &'static Value,
    pub(super) beyond: fn(&Value) -> Result<Vec<Problem>, serde_json::Error>,
}

const KINDS: [Kind; 3] = [row::<MiniCluster>(), row::<FluxJob>(), row::<FluxSetup>()];

const fn row<K: Checked>() -> Kind {
    Kind {
        name: K::KIND,
        schema: K::schema,
        beyond: |object| Ok(super::read::<K>(object)?.check_beyond_schema()),
    }
}

/// The kind of an object, or what is wrong with its `kind` and `apiVersion`.
pub(super) fn of(object: &Value) -> Result<&'static Kind, Problem> {
    let text = |field: &str| object[field].as_str();
    if !object.is_object() {
        return Err(Problem::new("document", "is not an object with apiVersion, kind and spec"));
    }
    let Some(name) = text("kind") else {
        return Err(Problem::new("kind", format!("is missing: write {}", names())));
    };
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        let nearest = structure::meant(name, KINDS.iter().map(|kind| kind.name));
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

/// The CRD's schema, with what the API server knows besides: the type fields
/// and Kubernetes' metadata.
fn whole_schema(crd: &CustomResourceDefinition) -> Value {
    let mut schema = crd::schema(crd);
    let mut generator = SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let mut metadata = embedded::<ObjectMeta>(&mut generator).to_value();
    // Written by the server; a manifest exported from a cluster has them.
    metadata["properties"]["managedFields"] = json!({
        "type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
    });
    schema["properties"]["apiVersion"] = json!({ "type": "string" });
    schema["properties"]["kind"] = json!({ "type": "string" });
    schema["properties"]["metadata"] = metadata;
    schema["required"] = json!(["metadata", "spec"]);
    schema
}
