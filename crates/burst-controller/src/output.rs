//! The output of a run: read from the log of its lead's pod, and kept in a ConfigMap at home.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use flux_operator_api::{Burst, Reason};
use flux_operator_plan::bursting::{CUT_KEY, OUTPUT_KEY, TargetFailure, output_name};
use futures::{AsyncRead, AsyncReadExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::LogParams;
use kube::{Api, Resource, ResourceExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::errors::target_failure;

/// How much of the end of the output is kept: an object has at most 1 MiB.
const KEPT_BYTES: usize = 900 * 1024;

/// How many lines are read: the last ones. With ten bytes each they are more
/// than is kept.
const MAX_LINES: usize = 100_000;

/// How much of them is read. The kubelet keeps 10 MiB unless it is configured otherwise.
const MAX_READ: usize = 64 * 1024 * 1024;

/// How long that may take.
const READ_TIME: Duration = Duration::from_secs(60);

/// How long nothing may arrive meanwhile.
const SILENCE: Duration = Duration::from_secs(15);

/// The largest text in JSON: control characters take six bytes there, and the API server accepts
/// 3 MiB.
const MAX_JSON: usize = 1536 * 1024;

/// The end of an output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RunOutput {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// What is left out, for users. Empty if nothing is.
    pub(crate) cut: String,
}

/// Keeps the end of what is added.
#[derive(Default)]
struct Tail {
    kept: VecDeque<u8>,
    left_out: usize,
    lines: usize,
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.lines += bytes.iter().filter(|byte| **byte == b'\n').count();
        self.kept.extend(bytes);
        let excess = self.kept.len().saturating_sub(KEPT_BYTES);
        self.kept.drain(..excess);
        self.left_out += excess;
    }

    fn total(&self) -> usize {
        self.kept.len() + self.left_out
    }

    /// What is kept, which does not begin in the middle of a character. `missing`: why what follows was
    /// not read.
    fn finish(mut self, missing: Option<&str>) -> RunOutput {
        let mut cut = Vec::new();
        if self.left_out > 0 {
            let inside = self.kept.iter().take(3).take_while(|byte| (*byte & 0xC0) == 0x80).count();
            self.kept.drain(..inside);
            self.left_out += inside;
            cut.push(format!("{} bytes before these are left out", self.left_out));
        }
        if self.lines >= MAX_LINES {
            cut.push(format!("lines before the last {MAX_LINES} were not read"));
        }
        cut.extend(missing.map(str::to_owned));
        RunOutput { bytes: self.kept.into(), cut: cut.join("; ") }
    }
}

/// Reads the end of the log of a pod.
pub(crate) async fn read(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
) -> Result<RunOutput, TargetFailure> {
    let number = |limit: usize| i64::try_from(limit).ok();
    let parameters = LogParams {
        container: Some(container.to_owned()),
        tail_lines: number(MAX_LINES),
        limit_bytes: number(MAX_READ),
        ..LogParams::default()
    };
    let log = pods.log_stream(pod, &parameters).await;
    read_log(log.map_err(|error| target_failure("read the output at the target", &error))?).await
}

/// Reads a log to its end. Of one that is too slow, what has arrived is kept: it would be as slow again.
/// One that stops in the middle can be read again.
async fn read_log(log: impl AsyncRead) -> Result<RunOutput, TargetFailure> {
    let failed = |why: &str| {
        let message = format!("failed to read the output at the target: {why}");
        TargetFailure::new(Reason::TargetUnreachable, message)
    };
    futures::pin_mut!(log);
    let (mut tail, mut buffer) = (Tail::default(), vec![0; 64 * 1024]);
    let deadline = Instant::now() + READ_TIME;
    while tail.total() < MAX_READ {
        let Ok(read) = timeout_at(deadline, timeout(SILENCE, log.read(&mut buffer))).await else {
            return Ok(tail.finish(Some("what follows did not arrive in time")));
        };
        let read = read.map_err(|_elapsed| failed("nothing more arrives"))?;
        match read.map_err(|error| failed(&error.to_string()))? {
            0 => return Ok(tail.finish(None)),
            read => tail.add(&buffer[..read]),
        }
    }
    Ok(tail.finish(Some("what follows was not read")))
}

/// The ConfigMap with an output. It is deleted with its Burst.
pub(crate) fn config_map(burst: &Burst, output: &RunOutput) -> ConfigMap {
    let mut data = BTreeMap::new();
    let mut binary = BTreeMap::new();
    let text = std::str::from_utf8(&output.bytes).ok();
    let fits = |text: &&str| {
        let controls = text.bytes().filter(|byte| *byte < 0x20 && *byte != b'\n').count();
        let quotes = text.bytes().filter(|byte| matches!(byte, b'\n' | b'"' | b'\\')).count();
        text.len() + controls * 5 + quotes <= MAX_JSON
    };
    match text.filter(fits) {
        Some(text) => drop(data.insert(OUTPUT_KEY.to_owned(), text.to_owned())),
        None => drop(binary.insert(OUTPUT_KEY.to_owned(), ByteString(output.bytes.clone()))),
    }
    if !output.cut.is_empty() {
        data.insert(CUT_KEY.to_owned(), output.cut.clone());
    }
    let filled = |map: bool| map.then_some(());
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(output_name(burst)),
            namespace: burst.namespace(),
            owner_references: burst.owner_ref(&()).map(|owner| vec![owner]),
            labels: Some(BTreeMap::from([(
                "app.kubernetes.io/managed-by".to_owned(),
                "flux-operator-burst".to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        binary_data: filled(!binary.is_empty()).map(|()| binary),
        data: filled(!data.is_empty()).map(|()| data),
        immutable: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, TryStreamExt};

    use super::*;

    fn map(bytes: &[u8], cut: &str) -> ConfigMap {
        let burst = Burst::new("b", Default::default());
        config_map(&burst, &RunOutput { bytes: bytes.to_vec(), cut: cut.into() })
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let mut tail = Tail::default();
        tail.add(b"first\n");
        tail.add("é".repeat(KEPT_BYTES / 2).as_bytes());
        tail.add(b"x");
        let output = tail.finish(None);
        assert!(output.bytes.ends_with(b"\xc3\xa9x"));
        assert!(std::str::from_utf8(&output.bytes).is_ok(), "a character is cut");
        let left_out = KEPT_BYTES + 7 - output.bytes.len();
        assert_eq!(output.cut, format!("{left_out} bytes before these are left out"));
        let short = Tail { kept: b"\xa9".iter().copied().collect(), ..Tail::default() };
        assert_eq!(short.finish(None), RunOutput { bytes: b"\xa9".to_vec(), cut: String::new() });
        let mut lines = Tail::default();
        lines.add(&b"\n".repeat(MAX_LINES));
        assert_eq!(lines.finish(None).cut, "lines before the last 100000 were not read");
    }

    /// A log that sends a byte after each of these seconds.
    fn log(seconds: Vec<u64>) -> impl AsyncRead {
        let bytes = futures::stream::iter(seconds).then(|seconds| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(b"x")
        });
        bytes.boxed().into_async_read()
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_arrived_of_a_slow_log_is_kept() {
        let whole = read_log(log(vec![0, 10, 10])).await.unwrap();
        assert_eq!(whole, RunOutput { bytes: b"xxx".to_vec(), cut: String::new() });
        let slow = read_log(log(vec![14; 10])).await.unwrap();
        assert_eq!((&slow.bytes[..], slow.cut.is_empty()), (&b"xxxx"[..], false), "{slow:?}");
        let silent = read_log(log(vec![1, 1, 20])).await.unwrap_err();
        assert!(silent.message.contains("nothing more arrives"), "{silent}");
    }

    #[tokio::test]
    async fn the_server_is_asked_for_the_end_of_the_log_alone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let kubeconfig = serde_json::json!({ "current-context": "c",
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
            "clusters": [{ "name": "k", "cluster": { "server": server } }],
            "users": [{ "name": "u", "user": { "token": "t" } }] });
        let asked = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let mut stream = listener.accept().unwrap().0;
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\na\n";
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let client = crate::target::connect(&kubeconfig.to_string()).await.unwrap().client;
        let output = read(&Api::namespaced(client, "there"), "pod", "fs").await.unwrap();
        assert_eq!(output, RunOutput { bytes: b"a\n".to_vec(), cut: String::new() });
        let asked = asked.join().unwrap();
        for limit in ["tailLines=100000", "limitBytes=67108864"] {
            assert!(asked.contains(limit), "{asked}");
        }
    }

    #[test]
    fn an_output_is_kept_byte_by_byte() {
        let text = "a 'b'\n\t\u{1}é🦀";
        assert_eq!(map(text.as_bytes(), "").data.unwrap()[OUTPUT_KEY], text);
        let binary = map(b"\xff\n", "");
        assert_eq!(binary.binary_data.unwrap()[OUTPUT_KEY].0, b"\xff\n");
        assert_eq!(binary.data, None);
        let controls = vec![1; KEPT_BYTES];
        assert!(map(&controls, "").binary_data.is_some(), "as text it would be too large");
        let cut = map(b"x", "7 bytes").data.unwrap();
        assert_eq!(cut[CUT_KEY], "7 bytes");
    }
}
