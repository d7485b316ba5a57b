//! Minimal API servers, and kubeconfigs for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};

/// A response: the list of one MiniCluster.
pub(crate) const ONE_MINICLUSTER: &str = r#"200 OK
Content-Type: application/json

{"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniClusterList", "metadata": {}, "items": [
  {"metadata": {"name": "fs"}, "spec": {"size": 1, "containers": [{"image": "busybox"}]}}]}"#;

/// The response of an API server that does not serve the kind.
pub(crate) const NOT_FOUND: &str =
    "404 Not Found\nContent-Type: text/plain\n\n404 page not found\n";

/// Serves the same response (status, headers, an empty line, body) to every request.
pub(crate) fn serve(answer: &'static str) -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        server.incoming().for_each(|stream| respond(stream.unwrap(), answer));
    });
    address
}

/// A request that changes something: its method, path and body.
#[derive(Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// Serves these objects, each by its name and in the list of its kind and namespace. The response
/// to a request to create one is the first of that list.
pub(crate) fn serve_objects(objects: Vec<Value>) -> SocketAddr {
    record_changes(objects, "").0
}

/// Serves these objects in the same way, and sends what would change them. A change of a path that
/// ends with `forbidden` is refused, unless that is empty.
pub(crate) fn record_changes(
    objects: Vec<Value>,
    forbidden: &'static str,
) -> (SocketAddr, Receiver<Change>) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let (sender, changes) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let (request, body) = read_request(&stream);
            // A connection may be closed without a request.
            let [method, target, ..] = request.split_whitespace().collect::<Vec<_>>()[..] else {
                continue;
            };
            let path = target.split('?').next().unwrap();
            let is_refused = !forbidden.is_empty() && path.ends_with(forbidden);
            let (code, body) = match (method, find(&objects, path)) {
                ("GET", found) => found,
                (_, found) => {
                    let (method, path) = (method.to_owned(), path.to_owned());
                    // A test may not be interested.
                    let _ = sender.send(Change { method: method.clone(), path, body });
                    match (method.as_str(), found) {
                        _ if is_refused => failure("403 Forbidden", "Forbidden", 403),
                        ("POST", (code, list)) => (code, list["items"][0].clone()),
                        (_, found) => found,
                    }
                }
            };
            let head = format!("{code}\nContent-Type: application/json");
            write_response(&mut stream, &head, &body.to_string());
        }
    });
    (address, changes)
}

/// Responds to a request with the object or list at its path.
pub(crate) fn respond_with_object(mut stream: TcpStream, objects: &[Value]) {
    let (request, _) = read_request(&stream);
    let Some(target) = request.split_whitespace().nth(1) else { return };
    let (code, body) = find(objects, target.split('?').next().unwrap());
    let head = format!("{code}\nContent-Type: application/json");
    write_response(&mut stream, &head, &body.to_string());
}

/// The object or list at a path, and the status line.
fn find(objects: &[Value], path: &str) -> (&'static str, Value) {
    let list_path = |object: &Value, is_of_namespace: bool| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let namespace = match is_of_namespace {
            true => format!("namespaces/{}/", text(&object["metadata"]["namespace"])),
            false => String::new(),
        };
        // The core group has no name.
        let prefix = if version.contains('/') { "apis" } else { "api" };
        let kind = kind.to_lowercase();
        let plural = match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{kind}s"),
        };
        format!("/{prefix}/{version}/{namespace}{plural}")
    };
    let is_named = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap();
        *path == format!("{}/{name}", list_path(object, true))
    };
    if let Some(object) = objects.iter().find(is_named) {
        return ("200 OK", object.clone());
    }
    let is_listed = |it: &&Value| list_path(it, true) == path || list_path(it, false) == path;
    let listed: Vec<&Value> = objects.iter().filter(is_listed).collect();
    if listed.is_empty() {
        return failure("404 Not Found", "NotFound", 404);
    }
    let metadata = json!({ "resourceVersion": "1" });
    let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": listed });
    ("200 OK", list)
}

fn failure(line: &'static str, reason: &str, code: u16) -> (&'static str, Value) {
    let message = if code == 404 { "not found" } else { "it is not allowed" };
    let status = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": message, "reason": reason, "code": code });
    (line, status)
}

/// Reads a request to its end, because the client may not read the response otherwise. Returns its
/// first line and its body.
fn read_request(stream: &TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let lines = reader.by_ref().lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let length = head.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or_default()];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    (head.into_iter().next().unwrap_or_default(), body)
}

/// Reads the head of a request, without the empty line at its end.
pub(crate) fn read_head(stream: &TcpStream) -> Vec<String> {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect()
}

fn respond(mut stream: TcpStream, answer: &str) {
    read_head(&stream);
    let (head, body) = answer.split_once("\n\n").unwrap();
    write_response(&mut stream, head, body);
}

fn write_response(stream: &mut TcpStream, head: &str, body: &str) {
    let head = head.replace('\n', "\r\n");
    // The client may have closed the connection.
    let _ = write!(
        stream,
        "HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
}

/// A kubeconfig for a server; `more` is added to its cluster, as JSON.
pub(crate) fn kubeconfig(server: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: '{server}'{more}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         users: [{{name: u, user: {{}}}}]\n"
    )
}
