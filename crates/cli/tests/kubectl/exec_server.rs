//! An API server whose pods run programs: it answers `exec` with a WebSocket, by the protocol
//! `v5.channel.k8s.io`. Each message begins with the number of its channel.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};
use tungstenite::Message;
use tungstenite::handshake::server::{Request, Response};
use tungstenite::http::HeaderValue;

use crate::server::respond_with_object;

const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const STATUS: u8 = 3;

/// Serves these objects. `run` gets the words of a program, separated by spaces, and returns its
/// output; `None` if it fails.
pub(crate) fn serve_with_programs(
    objects: Vec<Value>,
    run: impl Fn(&str) -> Option<String> + Clone + Send + 'static,
) -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let stream = stream.unwrap();
            if is_exec(&stream) {
                let run = run.clone();
                // Several programs run at the same time.
                std::thread::spawn(move || execute(stream, run));
            } else {
                respond_with_object(stream, &objects);
            }
        }
    });
    address
}

/// Whether a request is one to execute a program. Nothing of it is consumed.
fn is_exec(stream: &TcpStream) -> bool {
    let mut start = [0; 256];
    let length = stream.peek(&mut start).unwrap();
    String::from_utf8_lossy(&start[..length]).contains("/exec?")
}

#[expect(clippy::result_large_err, reason = "the type is that of the library's callback")]
fn execute(stream: TcpStream, run: impl Fn(&str) -> Option<String>) {
    let mut words = String::new();
    let accept = |request: &Request, mut response: Response| {
        words = program(request.uri().query().unwrap_or_default());
        let protocol = HeaderValue::from_static("v5.channel.k8s.io");
        response.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
        Ok(response)
    };
    let mut socket = tungstenite::accept_hdr(stream, accept).unwrap();
    let mut send = |channel: u8, text: &str| {
        socket.send(Message::binary([&[channel], text.as_bytes()].concat())).unwrap();
    };
    let cause = json!([{ "reason": "ExitCode", "message": "1" }]);
    let status = match run(&words) {
        Some(output) => {
            send(OUTPUT, &output);
            json!({ "status": "Success" })
        }
        None => {
            send(ERRORS, "it failed\n");
            json!({ "status": "Failure", "details": { "causes": cause } })
        }
    };
    send(STATUS, &status.to_string());
    // The client may have closed the connection.
    let _ = socket.close(None);
    let _ = socket.get_mut().read_to_end(&mut Vec::new());
}

/// The words of a program from a query.
fn program(query: &str) -> String {
    let words = query.split('&').filter_map(|pair| pair.strip_prefix("command="));
    words.map(decoded).collect::<Vec<_>>().join(" ")
}

/// Undoes the encoding of a URL's query.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().replace('+', " ");
    for part in parts {
        let (digits, rest) = part.split_at(2);
        decoded.push(char::from(u8::from_str_radix(digits, 16).unwrap()));
        decoded.push_str(&rest.replace('+', " "));
    }
    decoded
}
