//! The program: `flux-operator-gke up|down|list`.

use std::process::ExitCode;

use flux_operator_gke::{Failure, Google, Pace, Settings, down, list, up};
use flux_operator_wire::GkeFailure;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const USAGE: &str = "usage: flux-operator-gke up|down|list
The burst controller runs it as Jobs; their environment says what to do.";

// On the main thread, whose stack is large: Google's types have hundreds of fields.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The client library warns of a response that it cannot parse with the whole text, which may have a
    // token.
    let ours = Targets::new().with_target("flux_operator_gke", LevelFilter::INFO);
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(ours).with(log).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [verb] = &arguments[..] else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let done = match verb.as_str() {
        "up" => run_up().await,
        "down" => run_down().await,
        "list" => run_list().await,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The last line of the log is what Kubernetes shows of a container that has failed.
            eprintln!("error: {failure}");
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

fn settings() -> Result<Settings, Failure> {
    Settings::of(variable).map_err(of_settings)
}

fn of_settings(error: impl std::error::Error) -> Failure {
    Failure { kind: GkeFailure::Settings, message: error.to_string() }
}

async fn run_up() -> Result<(), Failure> {
    let settings = settings()?;
    let google = Google::of(&settings).await?;
    let home = kube::Client::try_default().await.map_err(of_settings)?;
    up(&google, &home, &settings, Pace::default()).await
}

async fn run_down() -> Result<(), Failure> {
    let settings = settings()?;
    let google = Google::of(&settings).await?;
    down(&google, &settings, Pace::default()).await
}

async fn run_list() -> Result<(), Failure> {
    let settings = Settings::for_list(variable).map_err(of_settings)?;
    for line in list(&Google::of(&settings).await?, Pace::default()).await? {
        println!("{line}");
    }
    Ok(())
}
