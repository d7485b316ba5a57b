//! The OpenAPI 3.1 description of the operator's HTTP interface.

use schemars::JsonSchema;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{
    Cluster, ErrorResponse, HandOverRequest, HandedOverJob, InstanceJobs, JobExplanation,
    QueueList, WaitingJobs,
};

/// An endpoint of the HTTP interface.
pub struct Endpoint {
    /// The path, with `{parameters}`.
    pub path: &'static str,
    /// The name of the operation in a generated client.
    operation_id: &'static str,
    /// What the response contains.
    summary: &'static str,
    /// Query parameters: name and description.
    query: &'static [(&'static str, &'static str)],
    /// The body of the request, of an endpoint that is posted to.
    request: Option<fn(&mut SchemaGenerator) -> Value>,
    response: fn(&mut SchemaGenerator) -> Value,
}

/// The queues that the caller may get.
pub const QUEUES: Endpoint = Endpoint {
    path: "/v1/queues",
    operation_id: "listQueues",
    summary: "The queues that the caller may get",
    query: &[],
    request: None,
    response: schema::<QueueList>,
};

/// The jobs that wait in a queue.
pub const PENDING_JOBS: Endpoint = Endpoint {
    path: "/v1/queues/{namespace}/{name}/pending",
    operation_id: "listWaitingJobs",
    summary: "The jobs that wait in a queue, in the order in which they are considered",
    query: &[
        ("limit", "Maximum number of jobs in the response; at most 1,000."),
        ("offset", "Number of jobs to skip."),
    ],
    request: None,
    response: schema::<WaitingJobs>,
};

/// Why a job waits.
pub const JOB_EXPLANATION: Endpoint = Endpoint {
    path: "/v1/namespaces/{namespace}/fluxjobs/{name}",
    operation_id: "explainJob",
    summary: "The state of a FluxJob in its queue, and the reason",
    query: &[],
    request: None,
    response: schema::<JobExplanation>,
};

/// A cluster.
pub const CLUSTER: Endpoint = Endpoint {
    path: "/v1/namespaces/{namespace}/miniclusters/{name}",
    operation_id: "getCluster",
    summary: "A MiniCluster as its lead reports it: brokers, ranks, number of jobs",
    query: &[],
    request: None,
    response: schema::<Cluster>,
};

/// The jobs that wait in an instance.
pub const CLUSTER_JOBS: Endpoint = Endpoint {
    path: "/v1/namespaces/{namespace}/miniclusters/{name}/jobs",
    operation_id: "listInstanceJobs",
    summary: "The jobs that wait in the Flux instance of a MiniCluster, and what runs meanwhile",
    query: &[
        (
            "version",
            "The version that the client knows. The response is delayed until there is another one.",
        ),
        (
            "wait",
            "Maximum delay of the response, in seconds; at most 25. If too many clients wait, it is not delayed.",
        ),
    ],
    request: None,
    response: schema::<InstanceJobs>,
};

/// Hands a job over.
pub const JOB_HAND_OVER: Endpoint = Endpoint {
    path: "/v1/namespaces/{namespace}/miniclusters/{name}/jobs/{id}/handover",
    operation_id: "handOverJob",
    summary: "Has a job of the instance held, canceled or released, for a run in an instance of its own. Needs the verb patch, because the response may have the job's environment",
    query: &[],
    request: Some(schema::<HandOverRequest>),
    response: schema::<HandedOverJob>,
};

/// All endpoints.
pub const ENDPOINTS: [Endpoint; 6] =
    [QUEUES, PENDING_JOBS, JOB_EXPLANATION, CLUSTER, CLUSTER_JOBS, JOB_HAND_OVER];

/// The OpenAPI document.
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
            "description": "Queues and clusters, as the operator sees them. Every request needs a token of the Kubernetes cluster, and permission to get the requested object.",
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
        responses.insert("200".into(), content("The requested object", (self.response)(generator)));
        for (code, description) in [
            ("401", "No token, or one that the cluster does not accept"),
            ("403", "The caller has no permission to get the object"),
            ("404", "The object does not exist"),
            ("503", "This replica of the operator cannot answer: try again"),
        ] {
            responses.insert(code.into(), content(description, schema::<ErrorResponse>(generator)));
        }
        let mut operation = json!({
            "operationId": self.operation_id,
            "summary": self.summary,
            "parameters": parameters,
            "responses": responses,
        });
        let Some(request) = self.request else { return json!({ "get": operation }) };
        let body = json!({ "application/json": { "schema": request(generator) } });
        operation["requestBody"] = json!({ "required": true, "content": body });
        json!({ "post": operation })
    }
}

fn content(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}
