//! Builds what each broker of a job has to launch.

use super::job::Job;
use crate::bytes::Bytes;
use crate::message::{Launch, Reply, TaskOwner};
use crate::submission::fill_template;

/// What each rank of a job has to launch.
pub(super) fn launches(job: &Job, path: &str) -> Vec<(u32, Launch)> {
    let submission = &job.submission;
    let id = job.id;
    let total: u32 = job.allocation.iter().map(|share| share.tasks).sum();
    let path = format!("{}/{id}", path.trim_end_matches('/'));
    let mut first_task = 0;
    let mut launches = Vec::new();
    for (share, index) in job.allocation.iter().zip(0..) {
        let tasks: Vec<u32> = (first_task..first_task + share.tasks).collect();
        first_task += share.tasks;
        let gpus: Vec<String> = share.gpus.iter().map(|gpu| gpu.to_string()).collect();
        let gpus = if gpus.is_empty() { "-1".to_owned() } else { gpus.join(",") };
        let mut environment = submission.environment.clone();
        for (name, value) in [
            ("FLUX_JOB_ID", id.to_string()),
            ("FLUX_JOB_ID_PATH", path.clone()),
            ("FLUX_JOB_SIZE", total.to_string()),
            ("FLUX_JOB_NNODES", job.allocation.len().to_string()),
            ("FLUX_KVS_NAMESPACE", format!("job-{}", id.number())),
            ("CUDA_VISIBLE_DEVICES", gpus),
        ] {
            environment.retain(|(other, _)| other.0 != name.as_bytes());
            environment.push((Bytes::from(name), Bytes::from(value)));
        }
        let fill = |file: &Option<String>| {
            file.as_ref().map(|file| fill_template(file, id, &submission.name))
        };
        let files = submission.files.each_ref().map(|file| fill(file).filter(|_| index == 0));
        let launch = Launch {
            run: TaskOwner::Job(id),
            tasks,
            command: submission.command.clone(),
            directory: Some(submission.directory.clone()),
            environment,
            input: submission.input,
            files,
            script: submission.script.clone(),
        };
        launches.push((share.rank, launch));
    }
    launches
}

/// The job shell's notices for output that is redirected to files.
pub(super) fn redirection_notices(tasks: u32, files: &[Option<String>; 2]) -> Vec<Reply> {
    let tasks = if tasks == 1 { "0".to_owned() } else { format!("[0-{}]", tasks - 1) };
    let text = |(name, file): (&str, &Option<String>)| {
        Some(Reply::Notice(format!("{tasks}: {name} redirected to {}", file.as_ref()?)))
    };
    ["stdout", "stderr"].into_iter().zip(files).filter_map(text).collect()
}
