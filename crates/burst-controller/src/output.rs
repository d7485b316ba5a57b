//! The output of a run: read from the log of its lead's pod, and kept in a ConfigMap at home.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use flux_operator_api::{Burst, Reason};
use flux_operator_plan::bursting::{TargetFailure, output_name};
use futures::AsyncReadExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::LogParams;
use kube::{Api, Resource, ResourceExt};

use crate::errors::target_failure;

/// How much of the end of the output is kept: an object has at most 1 MiB.
const KEPT_BYTES: usize = 900 * 1024;

/// How much of a log is read at most. The kubelet keeps 10 MiB unless it is configured otherwise.
const MAX_READ: usize = 64 * 1024 * 1024;

/// How long that may take.
const READ_TIME: Duration = Duration::from_secs(60);

/// The largest text in JSON: control characters take six bytes there, and the API server accepts
/// 3 MiB.
const MAX_JSON: usize = 1536 * 1024;

/// The keys of the ConfigMap.
const OUTPUT_KEY: &str = "output";
const CUT_KEY: &str = "cut";

/// The end of an output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RunOutput {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// How many bytes before them are left out.
    pub(crate) left_out: usize,
}

/// Keeps the end of what is added.
#[derive(Default)]
struct Tail {
    kept: VecDeque<u8>,
    left_out: usize,
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        let excess = self.kept.len().saturating_sub(KEPT_BYTES);
        self.kept.drain(..excess);
        self.left_out += excess;
    }

    fn total(&self) -> usize {
        self.kept.len() + self.left_out
    }

    /// The end, which does not begin in the middle of a character.
    fn finish(mut self) -> RunOutput {
        if self.left_out > 0 {
            let inside = self.kept.iter().take(3).take_while(|byte| (*byte & 0xC0) == 0x80).count();
            self.kept.drain(..inside);
            self.left_out += inside;
        }
        RunOutput { bytes: self.kept.into(), left_out: self.left_out }
    }
}

/// Reads the end of the log of a pod.
pub(crate) async fn read(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
) -> Result<RunOutput, TargetFailure> {
    let parameters = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
    let reading = async {
        let log = pods.log_stream(pod, &parameters).await;
        let log = log.map_err(|error| target_failure("read the output at the target", &error))?;
        futures::pin_mut!(log);
        let (mut tail, mut buffer) = (Tail::default(), vec![0; 64 * 1024]);
        while tail.total() < MAX_READ {
            let read = log.read(&mut buffer).await.map_err(|error| {
                let message = format!("failed to read the output at the target: {error}");
                TargetFailure::new(Reason::TargetUnreachable, message)
            })?;
            if read == 0 {
                break;
            }
            tail.add(&buffer[..read]);
        }
        Ok(tail.finish())
    };
    tokio::time::timeout(READ_TIME, reading).await.unwrap_or_else(|_elapsed| {
        let message = "the target does not send the output in time";
        Err(TargetFailure::new(Reason::TargetUnreachable, message))
    })
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
    if output.left_out > 0 {
        let cut = format!("{} bytes before these are left out", output.left_out);
        data.insert(CUT_KEY.to_owned(), cut);
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
    use super::*;

    fn map(bytes: &[u8], left_out: usize) -> ConfigMap {
        let burst = Burst::new("b", Default::default());
        config_map(&burst, &RunOutput { bytes: bytes.to_vec(), left_out })
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let mut tail = Tail::default();
        tail.add(b"first\n");
        tail.add("é".repeat(KEPT_BYTES / 2).as_bytes());
        tail.add(b"x");
        let output = tail.finish();
        assert!(output.bytes.ends_with(b"\xc3\xa9x"));
        assert!(std::str::from_utf8(&output.bytes).is_ok(), "a character is cut");
        assert_eq!(output.left_out + output.bytes.len(), KEPT_BYTES + 7);
        let short = Tail { kept: b"\xa9".iter().copied().collect(), left_out: 0 }.finish();
        assert_eq!(short, RunOutput { bytes: b"\xa9".to_vec(), left_out: 0 });
    }

    #[test]
    fn an_output_is_kept_byte_by_byte() {
        let text = "a 'b'\n\t\u{1}é🦀";
        assert_eq!(map(text.as_bytes(), 0).data.unwrap()[OUTPUT_KEY], text);
        let binary = map(b"\xff\n", 0);
        assert_eq!(binary.binary_data.unwrap()[OUTPUT_KEY].0, b"\xff\n");
        assert_eq!(binary.data, None);
        let controls = vec![1; KEPT_BYTES];
        assert!(map(&controls, 0).binary_data.is_some(), "as text it would be too large");
        let cut = map(b"x", 7).data.unwrap();
        assert_eq!(cut[CUT_KEY], "7 bytes before these are left out");
    }
}
