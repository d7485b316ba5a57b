//! What the server knows, and the answers of Google's API from that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::http::{Answer, Request};
use super::{Fault, Inside, TOKEN};

/// Statuses of clusters. The client asks for numbers.
const PROVISIONING: i64 = 1;
const RUNNING: i64 = 2;
const RECONCILING: i64 = 3;
const STOPPING: i64 = 4;
const ERROR: i64 = 5;
/// Statuses of operations.
const OPERATION_RUNNING: i64 = 2;
const DONE: i64 = 3;

/// Everything that the server knows.
pub(super) struct State {
    /// Clusters by their path, such as `projects/p/locations/z/clusters/c`.
    pub(super) clusters: BTreeMap<String, Value>,
    /// How often each of them is still asked for until its operation is done.
    left: BTreeMap<String, u32>,
    /// The cluster of each operation, and its error.
    operations: BTreeMap<String, (String, Option<Value>)>,
    /// Objects of API servers of Kubernetes by their path.
    pub(super) objects: BTreeMap<String, Value>,
    /// The methods of all requests, in their order.
    pub(super) methods: Vec<String>,
    /// What happens to the next calls of a method.
    pub(super) faults: BTreeMap<String, VecDeque<Fault>>,
    /// How often a cluster is asked for until an operation is done.
    pub(super) slowness: u32,
    /// What the next operation fails with.
    pub(super) failing: Option<Value>,
    /// Whether the credentials are no longer good.
    pub(super) is_revoked: bool,
    /// What API servers of new clusters are.
    pub(super) inside: Inside,
    /// How many clusters were created in all.
    pub(super) created: u32,
    /// Where this server is.
    address: SocketAddr,
}

impl State {
    pub(super) fn new(inside: Inside, address: SocketAddr) -> State {
        State {
            clusters: BTreeMap::new(),
            left: BTreeMap::new(),
            operations: BTreeMap::new(),
            objects: BTreeMap::new(),
            methods: Vec::new(),
            faults: BTreeMap::new(),
            slowness: 0,
            failing: None,
            is_revoked: false,
            inside,
            created: 0,
            address,
        }
    }

    /// Answers a request, as the published API does, unless a test wants it otherwise.
    pub(super) fn answer(&mut self, request: &Request) -> Answer {
        let (method, kind) = method_of(request);
        self.methods.push(method.clone());
        let fault = self.faults.get_mut(&method).and_then(VecDeque::pop_front);
        if let Some(Fault::LostBefore) = fault {
            return Answer::Closed;
        }
        if let Some(Fault::Refused(code, status, message)) = fault {
            return match kind {
                Kind::Kubernetes => kubernetes_error(code, status, &message),
                _ => google_error(code, status, &message),
            };
        }
        let answer = match kind {
            Kind::Token => self.token(request),
            Kind::Google(method) => self.google(method, request),
            Kind::Kubernetes => self.kubernetes(request),
            Kind::Unknown => google_error(404, "NOT_FOUND", "there is no such path"),
        };
        match fault {
            Some(Fault::LostAfter) => Answer::Closed,
            _ => answer,
        }
    }

    fn token(&self, request: &Request) -> Answer {
        if request.path.ends_with("/universe/universe-domain") {
            return Answer::Text(200, "googleapis.com".into());
        }
        if self.is_revoked && request.path == "/token" {
            let body = json!({ "error": "invalid_grant",
                "error_description": "Invalid grant: account not found" });
            return Answer::Json(400, body);
        }
        let token = match &self.inside {
            Inside::Fake => TOKEN,
            Inside::Real { token, .. } => token,
        };
        Answer::Json(
            200,
            json!({ "access_token": token, "expires_in": 3599, "token_type": "Bearer" }),
        )
    }

    fn google(&mut self, method: Method, request: &Request) -> Answer {
        if self.is_revoked || request.authorization.is_empty() {
            return google_error(
                401,
                "UNAUTHENTICATED",
                "Request had invalid authentication credentials. Expected OAuth 2 access token, login \
                 cookie or other valid authentication credential.",
            );
        }
        let path = request.path.trim_start_matches("/v1/").to_owned();
        match method {
            Method::ListClusters => {
                let clusters: Vec<&Value> = self.clusters.values().collect();
                Answer::Json(200, json!({ "clusters": clusters }))
            }
            Method::CreateCluster => self.create(&path, request),
            Method::GetCluster => self.get(&path),
            Method::DeleteCluster => self.delete(&path),
            Method::SetNodePoolSize => self.resize(&path, request),
            Method::GetOperation => self.operation(&path),
        }
    }

    fn create(&mut self, parent: &str, request: &Request) -> Answer {
        let mut cluster = request.json()["cluster"].take();
        let path = format!("{parent}/{}", cluster["name"].as_str().unwrap_or_default());
        if self.clusters.contains_key(&path) {
            return google_error(409, "ALREADY_EXISTS", &format!("Already exists: {path}."));
        }
        let (endpoint, authority) = match &self.inside {
            Inside::Fake => {
                (format!("http://127.0.0.1:{}/inside", self.address.port()), String::new())
            }
            Inside::Real { endpoint, authority, .. } => (endpoint.clone(), authority.clone()),
        };
        let nodes = cluster["nodePools"][0]["initialNodeCount"].clone();
        cluster["status"] = json!(PROVISIONING);
        cluster["endpoint"] = json!(endpoint);
        cluster["masterAuth"] = json!({ "clusterCaCertificate": authority });
        cluster["currentNodeCount"] = nodes;
        cluster["createTime"] = json!("2026-01-01T00:00:00+00:00");
        self.clusters.insert(path.clone(), cluster);
        self.created += 1;
        self.begin(&path)
    }

    /// Begins an operation of a cluster.
    fn begin(&mut self, path: &str) -> Answer {
        let name = format!("operation-{}", self.operations.len());
        self.left.insert(path.to_owned(), self.slowness);
        let error = self.failing.take();
        self.operations.insert(name.clone(), (path.to_owned(), error));
        Answer::Json(200, json!({ "name": name, "status": OPERATION_RUNNING, "operationType": 1 }))
    }

    fn get(&mut self, path: &str) -> Answer {
        self.advance(path);
        match self.clusters.get(path) {
            Some(cluster) => Answer::Json(200, cluster.clone()),
            None => not_found(path),
        }
    }

    /// Time passes for a cluster whenever it is asked for.
    fn advance(&mut self, path: &str) {
        let left = self.left.entry(path.to_owned()).or_default();
        if *left > 0 {
            *left -= 1;
            return;
        }
        let failed = self.operations.values().rfind(|(it, _)| it == path);
        let error = failed.and_then(|(_, error)| error.clone());
        let Some(cluster) = self.clusters.get_mut(path) else { return };
        match (cluster["status"].as_i64(), error) {
            (Some(STOPPING), _) => drop(self.clusters.remove(path)),
            (Some(PROVISIONING), Some(error)) => {
                cluster["status"] = json!(ERROR);
                // GCE_QUOTA_EXCEEDED.
                cluster["conditions"] = json!([{ "code": 3, "message": error["message"] }]);
            }
            (Some(PROVISIONING | RECONCILING), _) => cluster["status"] = json!(RUNNING),
            _ => {}
        }
    }

    fn delete(&mut self, path: &str) -> Answer {
        let Some(cluster) = self.clusters.get_mut(path) else { return not_found(path) };
        if matches!(cluster["status"].as_i64(), Some(PROVISIONING | RECONCILING | STOPPING)) {
            return busy();
        }
        cluster["status"] = json!(STOPPING);
        self.begin(path)
    }

    fn resize(&mut self, path: &str, request: &Request) -> Answer {
        let path = path.split("/nodePools/").next().unwrap_or_default().to_owned();
        let Some(cluster) = self.clusters.get_mut(&path) else { return not_found(&path) };
        if cluster["status"].as_i64() != Some(RUNNING) {
            return busy();
        }
        cluster["status"] = json!(RECONCILING);
        if self.failing.is_none() {
            cluster["currentNodeCount"] = request.json()["nodeCount"].clone();
        }
        self.begin(&path)
    }

    fn operation(&mut self, path: &str) -> Answer {
        let name = path.rsplit('/').next().unwrap_or_default();
        let Some((cluster, error)) = self.operations.get(name).cloned() else {
            return not_found(path);
        };
        self.advance(&cluster);
        let is_done = self.left.get(&cluster).is_none_or(|left| *left == 0);
        let mut operation = json!({ "name": name, "operationType": 1,
            "status": if is_done { DONE } else { OPERATION_RUNNING } });
        if let Some(error) = error.filter(|_| is_done) {
            operation["error"] = error;
        }
        Answer::Json(200, operation)
    }

    /// Enough of an API server: what is created exists afterwards.
    fn kubernetes(&mut self, request: &Request) -> Answer {
        let path = &request.path;
        // An API server takes no token that is signed with a key.
        if path.starts_with("/inside") && request.authorization != format!("Bearer {TOKEN}") {
            return kubernetes_error(401, "Unauthorized", "Unauthorized");
        }
        let body = request.json();
        if path.ends_with("/token") {
            let account = path.trim_end_matches("/token");
            if !self.objects.contains_key(account) {
                return kubernetes_error(404, "NotFound", "serviceaccounts not found");
            }
            let status = json!({ "token": "inner-token",
                "expirationTimestamp": "2026-01-02T00:00:00Z" });
            return Answer::Json(
                201,
                json!({ "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest", "metadata": {}, "spec": body["spec"], "status": status }),
            );
        }
        if request.method == "PATCH" {
            self.objects.insert(path.clone(), body.clone());
            return Answer::Json(200, body);
        }
        let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default());
        if self.objects.contains_key(&path) {
            return kubernetes_error(409, "AlreadyExists", "it already exists");
        }
        self.objects.insert(path, body.clone());
        Answer::Json(201, body)
    }

    /// The names of all clusters.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let last = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
        self.clusters.keys().map(last).collect()
    }
}

/// The methods of Google's API.
#[derive(Clone, Copy)]
enum Method {
    ListClusters,
    CreateCluster,
    GetCluster,
    DeleteCluster,
    SetNodePoolSize,
    GetOperation,
}

enum Kind {
    Token,
    Google(Method),
    Kubernetes,
    Unknown,
}

/// The method that a request calls: of Google's API by its name, of a Kubernetes API as verb and resource.
fn method_of(request: &Request) -> (String, Kind) {
    let path = request.path.as_str();
    let parts: Vec<&str> = path.split('/').collect();
    if path == "/token" || path.starts_with("/computeMetadata/") {
        return ("token".into(), Kind::Token);
    }
    if path.starts_with("/inside/") || path.starts_with("/home/") {
        let place = parts[1];
        let resource = match (request.method.as_str(), path.ends_with("/token")) {
            (_, true) => "serviceaccounts/token",
            ("PATCH", _) => parts[parts.len() - 2],
            _ => parts[parts.len() - 1],
        };
        return (format!("{place} {} {resource}", request.method), Kind::Kubernetes);
    }
    let method = match (request.method.as_str(), &parts[..]) {
        ("GET", ["", "v1", "projects", _, "locations", _, "clusters"]) => Method::ListClusters,
        ("POST", ["", "v1", "projects", _, "locations", _, "clusters"]) => Method::CreateCluster,
        ("GET", ["", "v1", "projects", _, "locations", _, "clusters", _]) => Method::GetCluster,
        ("DELETE", ["", "v1", "projects", _, "locations", _, "clusters", _]) => {
            Method::DeleteCluster
        }
        ("POST", ["", "v1", "projects", _, "locations", _, "clusters", _, "nodePools", pool])
            if pool.ends_with(":setSize") =>
        {
            Method::SetNodePoolSize
        }
        ("GET", ["", "v1", "projects", _, "locations", _, "operations", _]) => Method::GetOperation,
        _ => return (format!("{} {path}", request.method), Kind::Unknown),
    };
    let name = match method {
        Method::ListClusters => "ListClusters",
        Method::CreateCluster => "CreateCluster",
        Method::GetCluster => "GetCluster",
        Method::DeleteCluster => "DeleteCluster",
        Method::SetNodePoolSize => "SetNodePoolSize",
        Method::GetOperation => "GetOperation",
    };
    (name.into(), Kind::Google(method))
}

fn busy() -> Answer {
    let message = "Cluster is running incompatible operation operation-0.";
    google_error(400, "FAILED_PRECONDITION", message)
}

fn not_found(path: &str) -> Answer {
    google_error(404, "NOT_FOUND", &format!("Not found: {path}."))
}

fn google_error(code: u16, status: &str, message: &str) -> Answer {
    let error = json!({ "code": code, "message": message, "status": status });
    Answer::Json(code, json!({ "error": error }))
}

fn kubernetes_error(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "reason": reason, "message": message, "metadata": {} });
    Answer::Json(code, status)
}
