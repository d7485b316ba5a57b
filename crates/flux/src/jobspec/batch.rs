//! Reads the jobspecs of many jobs with a few commands.

use crate::{JobId, Jobspec};

/// How many jobspecs are read with one command: their keys take 16 KB of its arguments.
const MAX_JOBS: usize = 500;

/// The jobs whose jobspecs are read with one `flux kvs get`. It prints a jobspec on each line, and stops
/// at the first job that does not exist.
#[derive(Clone, Copy, Debug)]
pub struct JobspecBatch<'a>(&'a [JobId]);

impl<'a> JobspecBatch<'a> {
    /// The first of these jobs, as many as one command reads.
    pub fn first_of(ids: &'a [JobId]) -> JobspecBatch<'a> {
        JobspecBatch(&ids[..ids.len().min(MAX_JOBS)])
    }

    /// The jobs.
    pub fn ids(self) -> &'a [JobId] {
        self.0
    }

    /// The words of the command, after `flux`.
    pub fn command(self) -> Vec<String> {
        let keys = self.0.iter().map(|id| Jobspec::key(*id));
        ["kvs".to_owned(), "get".to_owned()].into_iter().chain(keys).collect()
    }

    /// The jobspecs in the output of the command, up to the first that cannot be read.
    pub fn parse(self, output: &str) -> Vec<(JobId, Jobspec)> {
        let jobspecs = output.lines().map_while(|line| Jobspec::parse(line).ok());
        self.0.iter().copied().zip(jobspecs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobspecs_are_read_up_to_the_first_that_is_missing() {
        let ids: Vec<JobId> = (1..=501).map(JobId::from).collect();
        let batch = JobspecBatch::first_of(&ids);
        assert_eq!(batch.ids(), &ids[..500]);
        let command = batch.command();
        assert_eq!(command[..3], ["kvs", "get", "job.0000.0000.0000.0001.jobspec"]);
        assert_eq!(command.len(), 502);
        let first = Jobspec::parse(r#"{"attributes": {"system": {"a": 1}}}"#).unwrap();
        let batch = JobspecBatch::first_of(&ids[..3]);
        let output = "{\"attributes\": {\"system\": {\"a\": 1}}}\n{}\n";
        let read = [(ids[0], first.clone()), (ids[1], Jobspec::default())];
        assert_eq!(batch.parse(output), read);
        // The last line is cut off.
        assert_eq!(batch.parse(&output[..output.len() - 2]), read[..1]);
        assert_eq!(batch.parse(&format!("{output}{{}}\n{{}}\n")).len(), 3);
        assert_eq!(batch.parse(""), []);
        assert!(JobspecBatch::first_of(&[]).ids().is_empty());
    }
}
