//! The kubeconfigs of the testbed's clients.
//!
//! They are written as JSON, which is valid YAML, and contain the certificates, so that they can be
//! copied elsewhere on the machine.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::files::{self, FileError, failed};
use crate::layout::TestbedDirectory;
use crate::pki;

/// Writes the kubeconfig of every client, for an API server at `server`.
pub(crate) fn write_all(home: &TestbedDirectory, server: SocketAddr) -> Result<(), FileError> {
    let authority = read(&home.pki("ca.crt"))?;
    for client in pki::CLIENTS {
        let certificate = read(&home.pki(&format!("{client}.crt")))?;
        let key = read(&home.pki(&format!("{client}.key")))?;
        let content = render(client, server, &authority, &certificate, &key);
        let path = match client {
            "admin" => home.kubeconfig(),
            component => home.kubeconfig_of(component),
        };
        let text = serde_json::to_vec_pretty(&content).expect("JSON values always serialize");
        files::write_private(&path, text)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(failed("read", path))
}

fn render(
    client: &str,
    server: SocketAddr,
    authority: &[u8],
    certificate: &[u8],
    key: &[u8],
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{
            "name": "testbed",
            "cluster": {
                "server": format!("https://{server}"),
                "certificate-authority-data": STANDARD.encode(authority),
            },
        }],
        "users": [{
            "name": client,
            "user": {
                "client-certificate-data": STANDARD.encode(certificate),
                "client-key-data": STANDARD.encode(key),
            },
        }],
        "contexts": [{
            "name": "testbed",
            "context": { "cluster": "testbed", "user": client, "namespace": "default" },
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_in_use_exists() {
        let server = "10.213.0.1:20000".parse().unwrap();
        let content = render("admin", server, b"a", b"b", b"c");
        assert_eq!(content["clusters"][0]["cluster"]["server"], "https://10.213.0.1:20000");
        assert_eq!(content["current-context"], content["contexts"][0]["name"]);
        assert_eq!(content["contexts"][0]["context"]["user"], content["users"][0]["name"]);
        assert_eq!(content["contexts"][0]["context"]["cluster"], content["clusters"][0]["name"]);
    }
}
