//! `flux jobs`: prints a table of jobs.

use std::ffi::OsString;

use flux_operator_flux::{JobId, JobResult, JobState};
use serde_json::{Value, json};

use super::format::Template;
use super::jobs_fields::{cell, heading, result, state, to_json};
use super::{CommandFailure, CommandResult, connect};
use crate::message::{Reply, Request};
use crate::options::{Flag, ParsedArguments, Syntax, ValueMode as Takes, flag, switch};
use crate::record::JobRecord;

const FLAGS: [Flag; 19] = [
    switch(Some('a'), "a"),
    switch(Some('A'), "A"),
    flag(Some('c'), "count"),
    flag(Some('f'), "filter"),
    flag(None, "since"),
    switch(Some('n'), "no-header"),
    flag(Some('u'), "user"),
    flag(None, "name"),
    flag(Some('q'), "queue"),
    flag(Some('i'), "include"),
    flag(Some('o'), "format"),
    flag(None, "sort"),
    Flag { short: None, long: "color", value: Takes::Optional },
    switch(None, "json"),
    switch(Some('R'), "recursive"),
    flag(Some('L'), "level"),
    switch(None, "recurse-all"),
    switch(None, "stats"),
    switch(None, "stats-only"),
];

const DEFAULT: &str = "{id.f58:>12} {username:<8.8} {name:<10.10+} {status_abbrev:>2.2} {ntasks:>6} {nnodes:>6h} {contextual_time!F:>8h} {contextual_info}";

const USAGE: &str = "\
flux-jobs [-h] [-a] [-A] [-c N] [-f STATE|RESULT] [--since WHEN] [-n]
                 [-u [USERNAME|UID]] [--name JOB-NAME] [-q QUEUE,...]
                 [-i HOSTS|RANKS] [-o FORMAT] [--sort KEY,...] [-w [N]]
                 [--json] [--color [WHEN]] [-R] [-L N] [--recurse-all]
                 [--threads N] [--stats] [--stats-only]
                 [JOBID ...]";

/// The states and results of jobs to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Filter {
    states: u64,
    results: u64,
}

pub fn main(arguments: &[OsString]) -> CommandResult {
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(arguments)
        .map_err(|error| CommandFailure::argparse(USAGE, "flux-jobs", &error))?;
    let fail = |text: String| CommandFailure::new(format!("flux-jobs: ERROR: {text}"));
    let format = options.get("format").unwrap_or(DEFAULT);
    let template = Template::parse(format, heading).map_err(|error| fail(error.to_string()))?;
    let filter = filter(&options).map_err(fail)?;
    let mut ids: Vec<JobId> = Vec::new();
    for word in options.positional() {
        ids.push(word.parse().map_err(|_| CommandFailure {
            text: format!(
                "usage: {USAGE}\nflux-jobs: error: argument JOBID: invalid JobID value: '{word}'"
            ),
            code: 2,
        })?);
    }
    if !ids.is_empty() && (options.has("a") || options.has("filter")) {
        eprintln!("flux-jobs: WARNING: Filtering options ignored with jobid list");
    }
    if ids.is_empty() && options.has("a") && options.has("filter") {
        eprintln!("flux-jobs: WARNING: Both -a and --filter specified, ignoring -a");
    }
    let mut client = connect("flux-jobs")?;
    let mut jobs: Vec<JobRecord> = Vec::new();
    let request = Request::List { ids: ids.clone(), states: filter.states };
    let take = |reply| {
        if let Reply::Job(job) = reply {
            jobs.push(*job);
        }
    };
    client.for_each_reply(request, take).map_err(|error| match error.refusal() {
        Some(_) => {
            let words = options.positional();
            let unknown = words.iter().find(|word| {
                word.parse::<JobId>().is_ok_and(|id| id.to_string() == error.to_string())
            });
            CommandFailure::new(format!("JobID {} unknown", unknown.cloned().unwrap_or_default()))
        }
        None => CommandFailure::client("flux-jobs", &error),
    })?;
    if ids.is_empty() {
        jobs.retain(|job| is_shown(job, filter, &options));
        truncate(&mut jobs, &options);
    }
    print(&jobs, &ids, &template, &options);
    Ok(0)
}

fn is_shown(job: &JobRecord, filter: Filter, options: &ParsedArguments) -> bool {
    let wanted = match result(job) {
        Some(result) => result.number() & filter.results != 0,
        None => state(job).number() & filter.states != 0,
    };
    wanted && options.get("name").is_none_or(|name| name == job.name)
}

fn truncate(jobs: &mut Vec<JobRecord>, options: &ParsedArguments) {
    let limit = options.get("count").and_then(|text| text.parse().ok()).unwrap_or(1000);
    if limit > 0 && jobs.len() > limit {
        jobs.truncate(limit);
        if !options.has("json") && !options.has("no-header") {
            eprintln!("warning: output truncated at {limit} jobs.");
            eprintln!("Use --count to increase returned results or use filters to alter results.");
        }
    }
}

fn print(jobs: &[JobRecord], ids: &[JobId], template: &Template, options: &ParsedArguments) {
    let now = crate::time::now();
    if options.has("json") {
        let list: Vec<Value> = jobs.iter().map(|job| to_json(job, now)).collect();
        let json = if ids.len() == 1 {
            list.into_iter().next().unwrap_or_default()
        } else {
            json!({"jobs": list})
        };
        println!("{}", crate::json::spaced_ascii(&json));
        return;
    }
    if !options.has("no-header") {
        println!("{}", template.heading(heading).trim_end());
    }
    for job in jobs {
        println!("{}", template.line(|name| cell(job, name, now)));
    }
}

/// The filter that the options describe; active jobs by default.
fn filter(options: &ParsedArguments) -> Result<Filter, String> {
    let all = Filter { states: 127, results: 15 };
    if (options.has("a") || options.has("since")) && !options.has("filter") {
        return Ok(all);
    }
    let Some(text) = options.get("filter") else { return Ok(Filter { states: 62, results: 0 }) };
    let mut filter = Filter { states: 0, results: 0 };
    for word in text.split(',') {
        let word = word.to_lowercase();
        if word == "inactive" {
            filter = Filter { states: filter.states | 64, results: 15 };
        } else if let Ok(group) = word.parse::<flux_operator_flux::JobStateGroup>() {
            filter.states |= group.number();
        } else if let Ok(state) = word.parse::<JobState>() {
            filter.states |= state.number();
        } else if let Ok(result) = word.parse::<JobResult>() {
            filter.states |= JobState::Inactive.number();
            filter.results |= result.number();
        } else {
            return Err(format!("Invalid filter specified: {word}"));
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_of(words: &[&str]) -> Result<Filter, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        filter(&Syntax { flags: &FLAGS, permute: true }.parse(&words).unwrap())
    }

    #[test]
    fn filters_are_states_and_results() {
        assert_eq!(filter_of(&[]), Ok(Filter { states: 62, results: 0 }));
        assert_eq!(filter_of(&["-a"]), Ok(Filter { states: 127, results: 15 }));
        let both = Filter { states: 14 | 64, results: 2 };
        assert_eq!(filter_of(&["-f", "pending,failed"]), Ok(both));
        assert_eq!(filter_of(&["-f", "inactive"]), Ok(Filter { states: 64, results: 15 }));
        assert_eq!(filter_of(&["-fnosuch"]), Err("Invalid filter specified: nosuch".to_owned()));
    }

    #[test]
    fn the_table_is_that_of_flux() {
        let template = Template::parse(DEFAULT, heading).unwrap();
        assert_eq!(
            template.heading(heading),
            "       JOBID USER     NAME       ST NTASKS NNODES     TIME INFO"
        );
        let mut job = JobRecord::new("ƒ2HV8vBq".parse().unwrap());
        job.name = "nosuchcommand".to_owned();
        job.ntasks = 1;
        job.nnodes = Some(1);
        (job.t_run, job.t_cleanup) = (Some(10.0), Some(10.025));
        (job.state, job.result) = (64, Some(2));
        job.nodelist = Some("fs-0".to_owned());
        let line = template.line(|name| cell(&job, name, 20.0));
        assert_eq!(line, "    ƒ2HV8vBq root     nosuchcom+  F      1      1   0.025s fs-0");
    }
}
