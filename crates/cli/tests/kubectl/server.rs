//! Minimal API servers, and kubeconfigs for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

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

/// Serves these objects, each by its name and in the list of its kind and namespace. The response
/// to a request to create one is the first of that list.
pub(crate) fn serve_objects(objects: Vec<Value>) -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let request = read_request(&stream);
            // A connection may be closed without a request.
            let [method, target, ..] = request.split_whitespace().collect::<Vec<_>>()[..] else {
                continue;
            };
            let (code, body) = match (method, find(&objects, target.split('?').next().unwrap())) {
                ("POST", (code, list)) => (code, list["items"][0].clone()),
                (_, found) => found,
            };
            let head = format!("{code}\nContent-Type: application/json");
            write_response(&mut stream, &head, &body.to_string());
        }
    });
    address
}

/// The object or list at a path, and the status line.
fn find(objects: &[Value], path: &str) -> (&'static str, Value) {
    let list_path = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let namespace = text(&object["metadata"]["namespace"]);
        // The core group has no name.
        let prefix = if version.contains('/') { "apis" } else { "api" };
        format!("/{prefix}/{version}/namespaces/{namespace}/{}s", kind.to_lowercase())
    };
    let is_named = |object: &&Value| {
        *path == format!("{}/{}", list_path(object), object["metadata"]["name"].as_str().unwrap())
    };
    if let Some(object) = objects.iter().find(is_named) {
        return ("200 OK", object.clone());
    }
    let listed: Vec<&Value> = objects.iter().filter(|it| list_path(it) == path).collect();
    if listed.is_empty() {
        let status = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "message": "not found", "reason": "NotFound", "code": 404 });
        return ("404 Not Found", status);
    }
    let metadata = json!({ "resourceVersion": "1" });
    let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": listed });
    ("200 OK", list)
}

/// Reads a request to its end, because the client may not read the response otherwise. Returns its
/// first line.
fn read_request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let lines = reader.by_ref().lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let length = head.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
    });
    reader.read_exact(&mut vec![0; length.unwrap_or_default()]).unwrap();
    head.into_iter().next().unwrap_or_default()
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
