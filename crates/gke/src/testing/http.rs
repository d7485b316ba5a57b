//! HTTP/1.1 with one request for each connection, so that a test decides what becomes of each answer.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The longest head of a request.
const MAX_HEAD: usize = 64 * 1024;

/// A request.
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    /// The value of `Authorization`.
    pub(super) authorization: String,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The body, if it is JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What becomes of a request.
pub(super) enum Answer {
    Json(u16, Value),
    Text(u16, String),
    /// The connection is closed without an answer.
    Closed,
    /// There is no answer, ever.
    Silence,
}

/// Answers requests until it is dropped.
pub(super) async fn serve<F>(listener: TcpListener, answer: F)
where
    F: Fn(&Request) -> Answer + Send + Sync + 'static,
{
    let answer = Arc::new(answer);
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            // A client that was killed is as good as one that has read its answer.
            let _written = one(stream, &*answer).await;
        });
    }
}

async fn one(
    mut stream: TcpStream,
    answer: &(impl Fn(&Request) -> Answer + Sync),
) -> std::io::Result<()> {
    let Some(request) = read(&mut stream).await? else { return Ok(()) };
    let (code, kind, text) = match answer(&request) {
        Answer::Json(code, value) => (code, "application/json", value.to_string()),
        Answer::Text(code, text) => (code, "text/plain", text),
        Answer::Closed => return Ok(()),
        Answer::Silence => std::future::pending().await,
    };
    let head = format!(
        "HTTP/1.1 {code} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\
         metadata-flavor: Google\r\nconnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let mut body = bytes.split_off(end + 4);
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut length, mut authorization) = (0, String::new());
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "authorization" => value.trim().clone_into(&mut authorization),
            _ => {}
        }
    }
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    let path = target.split('?').next().unwrap_or_default().to_owned();
    Ok(Some(Request { method: method.to_owned(), path, authorization, body }))
}
