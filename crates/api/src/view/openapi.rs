//! The description of the operator's HTTP interface, as OpenAPI 3.1.

use schemars::JsonSchema;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Cluster, InstanceJobs, QueueList, Refused, WaitingJobs, Why};

/// Something that can be asked for.
pub struct Endpoint {
    /// Where, with `{parameters}`.
    pub path: &'static str,
    /// What it is called in a client.
    operation: &'static str,
    /// What is answered.
    summary: &'static str,
    /// Parameters behind the `?`: name, and what it says.
    query: &'static [(&'static str, &'static str)],
    answer: fn(&mut SchemaGenerator) -> Value,
}

/// The queues that the caller may get.
pub const QUEUES: Endpoint = Endpoint {
    path: "/v1/queues",
    operation: "listQueues",
    summary: "The queues that the caller may get",
    query: &[],
    answer: schema::<QueueList>,
};

/// The jobs that wait in a queue.
pub const WAITING: Endpoint = Endpoint {
    path: "/v1/queues/{namespace}/{name}/pending",
    operation: "listWaitingJobs",
    summary: "The jobs that wait in a queue, in the order in which they are looked at",
    query: &[
        ("limit", "How many at most; 1,000 at most."),
        ("offset", "How many of the first are left out."),
    ],
    answer: schema::<WaitingJobs>,
};

/// Why a job waits.
pub const WHY: Endpoint = Endpoint {
    path: "/v1/namespaces/{namespace}/fluxjobs/{name}",
    operation: "explainJob",
    summary: "How a FluxJob stands, and why",
    query: &[],
    answer: schema::<Why>,
};

/// A cluster.
pub const CLUSTER: Endpoint = Endpoint {
    path: "/v1/namespaces/{namespace}/miniclusters/{name}",
    operation: "getCluster",
    summary: "A MiniCluster as its lead sees it: brokers, ranks, how many jobs",
    query: &[],
    answer: schema::<Cluster>,
};

/// The jobs that wait in an instance.
pub const CLUSTER_JOBS: Endpoint = Endpoint {
    path: "/v1/namespaces/{namespace}/miniclusters/{name}/jobs",
    operation: "listInstanceJobs",
    summary: "The jobs that wait in the Flux instance of a MiniCluster",
    query: &[],
    answer: schema::<InstanceJobs>,
};

/// All that can be asked for.
pub const ENDPOINTS: [Endpoint; 5] = [QUEUES, WAITING, WHY, CLUSTER, CLUSTER_JOBS];

/// The description.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let paths: Map<String, Value> = ENDPOINTS
        .iter()
        .map(|endpoint| (endpoint.path.to_owned(), endpoint.describe(&mut generator)))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "flux-operator",
            "description": "What the operator shows of queues and clusters. Every request needs a token of the Kubernetes cluster, and the right to get what is asked for.",
            "version": "v1",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

impl Endpoint {
    fn describe(&self, generator: &mut SchemaGenerator) -> Value {
        let in_path = self
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')));
        let in_path = in_path.map(|name| {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
        });
        let in_query = self.query.iter().map(|(name, description)| {
            let schema = json!({ "type": "integer", "minimum": 0 });
            json!({ "name": name, "in": "query", "description": description, "schema": schema })
        });
        let parameters: Vec<Value> = in_path.chain(in_query).collect();
        let mut responses = Map::new();
        responses.insert("200".into(), content("The answer", (self.answer)(generator)));
        for (code, description) in [
            ("401", "No token, or one that the cluster does not know"),
            ("403", "The caller may not get what it asks for"),
            ("404", "There is no such object"),
        ] {
            responses.insert(code.into(), content(description, schema::<Refused>(generator)));
        }
        json!({
            "get": {
                "operationId": self.operation,
                "summary": self.summary,
                "parameters": parameters,
                "responses": responses,
            },
        })
    }
}

fn content(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}
