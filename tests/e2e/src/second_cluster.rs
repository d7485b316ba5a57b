//! A second Kubernetes cluster, linked to the first as two clusters of a user may be: their nodes
//! reach each other, their pods do not.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use flux_operator_testbed::{Layout, Testbed, TestbedName, link};
use flux_operator_testkit::cluster::{program, testbed};
use flux_operator_testkit::images::{import_all, import_to};

use crate::{TestNamespace, in_namespace_of};

/// A generous limit for the start of a testbed, on a machine that is busy with the first.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a test in a namespace of each of two clusters, each with an operator.
pub async fn with_two_clusters<T>(
    test: impl AsyncFnOnce(&mut TestNamespace, &mut TestNamespace) -> Result<T>,
) -> Result<T> {
    import_all()?;
    let second = second_testbed()?;
    in_namespace_of(testbed()?, async |home| {
        in_namespace_of(second, async |away| {
            away.start_operator().await?;
            Box::pin(test(home, away)).await
        })
        .await
    })
    .await
}

/// The second testbed, started once per test program. It is stopped when this process ends.
pub fn second_testbed() -> Result<Testbed> {
    static SECOND: Mutex<Option<(Testbed, Child)>> = Mutex::new(None);
    let mut second = SECOND.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((testbed, _)) = &*second {
        return Ok(testbed.clone());
    }
    let first: TestbedName =
        std::env::var("TESTBED_NAME").unwrap_or_else(|_| "default".into()).parse()?;
    let name: TestbedName = format!("{first}-b").parse()?;
    // `cat` ends with its input, and with it the testbed.
    let mut child = Command::new(program()?.with_file_name("testbed"))
        .args(["run", "--name", &name.to_string(), "--level", "node", "--audit", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("failed to start the second testbed")?;
    let layout = Layout::discover();
    let started = Instant::now();
    let found = loop {
        if let Some(found) = Testbed::find_in(&layout, &name) {
            break found;
        }
        if let Some(status) = child.try_wait()? {
            bail!("the second testbed exited with {status}");
        }
        if started.elapsed() > LIMIT {
            bail!("the second testbed is not ready after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    link(&layout, &first, &name).context("failed to link the testbeds")?;
    import_to(&found)?;
    *second = Some((found.clone(), child));
    Ok(found)
}
