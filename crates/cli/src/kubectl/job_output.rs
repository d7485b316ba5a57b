//! `kubectl minicluster logs NAME --job ID`: print the output of a job that has run in an instance of
//! its own elsewhere.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flux_operator_api::Burst;
use flux_operator_api::burst::RunState;
use flux_operator_flux::JobId;
use flux_operator_plan::bursting::{CUT_KEY, OUTPUT_KEY};
use k8s_openapi::api::core::v1::ConfigMap;

use super::burst::jobs::run_of;
use super::listing;
use super::session::Session;
use crate::print;

/// Prints the output of a job.
pub(super) async fn print_output(session: &Session, cluster: &str, job: JobId) -> Result<ExitCode> {
    let bursts = match listing::list::<Burst>(session.api()).await {
        Ok(listed) => listed.items,
        Err(error) => return Err(session.explain(error, "failed to list Bursts").await),
    };
    let Some(burst) = run_of(cluster, job, &bursts) else {
        // A record may outlive its MiniCluster.
        session.minicluster(cluster).await?;
        bail!(
            "no Burst has run job {job} of {cluster:?} in an instance of its own, or that is more than \
             a day ago\nhint: the output of other jobs is printed by `flux job attach {job}` in `{}`",
            session.command(&format!("shell {cluster}"))
        );
    };
    let run = burst.run().cloned().unwrap_or_default();
    if run.output.is_empty() {
        let why = match run.message.as_str() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let hint = match run.state {
            RunState::Holding | RunState::Starting | RunState::Running | RunState::Finishing => {
                let jobs = session.command(&format!("jobs {cluster}"));
                format!("there is output when it has finished; `{jobs}` shows its state")
            }
            RunState::Refused | RunState::Yielded => {
                let explain = session.command(&format!("why {cluster} --job {job}"));
                format!("it has not run elsewhere; `{explain}` shows why it waits")
            }
            RunState::Completed | RunState::Failed => {
                "it is not run again: submit the job again to have it".to_owned()
            }
        };
        let state = run.state.as_str().to_lowercase();
        bail!("job {job} has no output: it is {state}{why}\nhint: {hint}");
    }
    let found = session.api::<ConfigMap>().get_opt(&run.output).await;
    let found = match found {
        Ok(found) => {
            found.with_context(|| format!("the ConfigMap {:?} was deleted", run.output))?
        }
        Err(error) => return Err(session.explain(error, "failed to get the output").await),
    };
    let (bytes, cut) = content(found);
    if let Some(cut) = cut {
        print::message(format_args!("note: {cut}"));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => print::output(text)?,
        Err(_) => std::io::stdout().write_all(&bytes).context("failed to print the output")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The output in a ConfigMap, and what is left out.
fn content(mut map: ConfigMap) -> (Vec<u8>, Option<String>) {
    let mut data = map.data.take().unwrap_or_default();
    let mut binary = map.binary_data.take().unwrap_or_default();
    let text = data.remove(OUTPUT_KEY).map(String::into_bytes);
    let bytes = text.or(binary.remove(OUTPUT_KEY).map(|bytes| bytes.0)).unwrap_or_default();
    (bytes, data.remove(CUT_KEY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_output_is_text_or_bytes() {
        let map = |json| content(serde_json::from_value::<ConfigMap>(json).unwrap());
        let text = map(json!({ "data": { "output": "a\n", "cut": "7 bytes" } }));
        assert_eq!(text, (b"a\n".to_vec(), Some("7 bytes".into())));
        assert_eq!(map(json!({ "binaryData": { "output": "/w==" } })), (vec![0xff], None));
    }
}
