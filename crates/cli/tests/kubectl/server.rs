//! Minimal API servers, and kubeconfigs for them.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

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

/// Reads the head of a request, without the empty line at its end.
pub(crate) fn read_head(stream: &TcpStream) -> Vec<String> {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect()
}

fn respond(mut stream: TcpStream, answer: &str) {
    read_head(&stream);
    let (head, body) = answer.split_once("\n\n").unwrap();
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
