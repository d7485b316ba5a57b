//! The fields of `flux jobs -o`, by name.

use flux_operator_flux::{JobResult, JobState};
use serde_json::Value;

use super::format::Cell;
use crate::instance::exit_code;
use crate::record::JobRecord;

/// The heading of a field, if there is such a field.
pub fn heading(name: &str) -> Option<String> {
    let heading = match name {
        "id" | "id.f58" | "id.f58plain" | "id.dec" | "id.hex" | "id.kvs" | "id.dothex" => "JOBID",
        "username" => "USER",
        "userid" => "UID",
        "urgency" => "URG",
        "priority" => "PRI",
        "state_single" => "S",
        "status_abbrev" => "ST",
        "contextual_info" => "INFO",
        "contextual_time" => "TIME",
        "result_abbrev" => "RESULT",
        "returncode" => "RC",
        "exception.occurred" => "EXCEPTION-OCCURRED",
        "exception.severity" => "EXCEPTION-SEVERITY",
        "exception.type" => "EXCEPTION-TYPE",
        "exception.note" => "EXCEPTION-NOTE",
        "state" | "name" | "cwd" | "queue" | "bank" | "project" | "ntasks" | "ncores"
        | "nnodes" | "ranks" | "nodelist" | "success" | "result" | "t_submit" | "t_depend"
        | "t_run" | "t_cleanup" | "t_inactive" | "runtime" | "duration" | "expiration"
        | "t_remaining" | "status" | "waitstatus" | "inactive_reason" | "annotations"
        | "dependencies" | "uri" => {
            return Some(name.to_uppercase());
        }
        _ => return None,
    };
    Some(heading.to_owned())
}

/// The value of a job's field.
pub fn cell(job: &JobRecord, name: &str, now: f64) -> Option<Cell> {
    let text = |text: &str| Cell::Text(text.to_owned());
    let optional = |value: &Option<String>| text(value.as_deref().unwrap_or_default());
    let count = |value: Option<i64>| value.map_or(text(""), Cell::Integer);
    let time = |value: Option<f64>| Cell::Number(value.unwrap_or(0.0));
    let state = state(job);
    let result = result(job);
    Some(match name {
        "id" | "id.f58" => Cell::Text(job.id.to_string()),
        "id.f58plain" => Cell::Text(job.id.to_f58_plain()),
        "id.dec" => Cell::Text(job.id.number().to_string()),
        "id.hex" => Cell::Text(format!("{:#x}", job.id.number())),
        "id.kvs" => Cell::Text(format!("job.{}", job.id.to_dotted_hexadecimal())),
        "id.dothex" => Cell::Text(job.id.to_dotted_hexadecimal()),
        "username" => Cell::Text(super::info::user_name(job.userid)),
        "userid" => Cell::Integer(i64::from(job.userid)),
        "urgency" => Cell::Integer(i64::from(job.urgency)),
        "priority" => count(job.priority.and_then(|priority| i64::try_from(priority).ok())),
        "state" => text(state.name()),
        "state_single" => text(state.short_name()),
        "status" => text(result.map_or(state.name(), JobResult::name)),
        "status_abbrev" => text(result.map_or(state.short_name(), JobResult::short_name)),
        "result" => text(result.map_or("", JobResult::name)),
        "result_abbrev" => text(result.map_or("", JobResult::short_name)),
        "name" => text(&job.name),
        "cwd" => text(&job.cwd),
        "ntasks" => Cell::Integer(i64::from(job.ntasks)),
        "ncores" => count(job.ncores.and_then(|cores| i64::try_from(cores).ok())),
        "nnodes" => count(job.nnodes.map(i64::from)),
        "ranks" => optional(&job.ranks),
        "nodelist" => optional(&job.nodelist),
        "success" => text(job.success.map_or("", |good| if good { "True" } else { "False" })),
        "exception.occurred" => {
            text(job.exception_occurred.map_or("", |is| if is { "True" } else { "False" }))
        }
        "exception.severity" => count(job.exception_severity.map(i64::from)),
        "exception.type" => optional(&job.exception_type),
        "exception.note" => optional(&job.exception_note),
        "t_submit" => Cell::Number(job.t_submit),
        "t_depend" => time(job.t_depend),
        "t_run" => time(job.t_run),
        "t_cleanup" => time(job.t_cleanup),
        "t_inactive" => time(job.t_inactive),
        "expiration" => time(job.expiration),
        "duration" => Cell::Number(job.duration),
        "runtime" => Cell::Number(runtime(job, now)),
        "t_remaining" => match job.expiration.filter(|time| *time > now && result.is_none()) {
            Some(time) => Cell::Number(time - now),
            None => Cell::Number(0.0),
        },
        "waitstatus" => count(job.waitstatus.map(i64::from)),
        "returncode" => count(return_code(job).map(i64::from)),
        "inactive_reason" => Cell::Text(inactive_reason(job)),
        "contextual_time" => Cell::Number(runtime(job, now)),
        "contextual_info" => Cell::Text(contextual_info(job)),
        "annotations" => match &job.annotations {
            Some(annotations) => Cell::Text(crate::json::spaced(annotations)),
            None => text(""),
        },
        "queue" | "bank" | "project" | "dependencies" | "uri" => text(""),
        _ => return None,
    })
}

/// A job as JSON, in the form of Python's JobInfo.
pub fn to_json(job: &JobRecord, now: f64) -> Value {
    let Value::Object(mut json) = serde_json::to_value(job).unwrap_or_default() else {
        return Value::Null;
    };
    let state = state(job);
    let result = result(job);
    for key in [
        "exception_occurred",
        "exception_type",
        "exception_severity",
        "exception_note",
        "expiration",
    ] {
        json.remove(key);
    }
    let mut exception = serde_json::Map::new();
    exception.insert("occurred".to_owned(), Value::from(job.exception_occurred == Some(true)));
    if job.exception_occurred == Some(true) {
        exception.insert("severity".to_owned(), Value::from(job.exception_severity));
        exception.insert("type".to_owned(), Value::from(job.exception_type.clone()));
        exception.insert("note".to_owned(), Value::from(job.exception_note.clone()));
    }
    json.insert("state".to_owned(), Value::from(state.name()));
    if let Some(result) = result {
        json.insert("result".to_owned(), Value::from(result.name()));
    }
    if let Some(code) = return_code(job) {
        json.insert("returncode".to_owned(), Value::from(code));
    }
    if job.t_run.is_some() {
        json.insert("runtime".to_owned(), Value::from(runtime(job, now)));
    }
    let status = result.map_or(state.name(), JobResult::name);
    json.insert("status".to_owned(), Value::from(status));
    json.insert("username".to_owned(), Value::from(super::info::user_name(job.userid)));
    json.insert("jobid".to_owned(), Value::from(job.id.to_string()));
    json.insert("dependencies".to_owned(), Value::Array(Vec::new()));
    json.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
    json.insert("exception".to_owned(), Value::Object(exception));
    Value::Object(json)
}

pub fn state(job: &JobRecord) -> JobState {
    use JobState::*;
    let all = [New, Depend, Priority, Sched, Run, Cleanup, Inactive];
    all.into_iter().find(|state| state.number() == job.state).unwrap_or(New)
}

pub fn result(job: &JobRecord) -> Option<JobResult> {
    use JobResult::*;
    let all = [Completed, Failed, Canceled, Timeout];
    all.into_iter().find(|result| Some(result.number()) == job.result)
}

/// How long the job ran, or has been running.
fn runtime(job: &JobRecord, now: f64) -> f64 {
    match job.t_run {
        Some(start) => (job.t_cleanup.unwrap_or(now) - start).max(0.0),
        None => 0.0,
    }
}

/// The exit code. As in Flux, a job that never ran has 1, or -128 if it was canceled.
fn return_code(job: &JobRecord) -> Option<i32> {
    match (job.waitstatus, result(job)) {
        (Some(status), _) => Some(exit_code(status)),
        (None, Some(JobResult::Canceled)) => Some(-128),
        (None, Some(_)) => Some(1),
        (None, None) => None,
    }
}

fn contextual_info(job: &JobRecord) -> String {
    match state(job) {
        JobState::Sched if job.priority == Some(0) => "held".to_owned(),
        JobState::Depend | JobState::Priority | JobState::Sched | JobState::New => String::new(),
        _ => job.nodelist.clone().unwrap_or_default(),
    }
}

fn inactive_reason(job: &JobRecord) -> String {
    let note = job.exception_note.as_deref().unwrap_or_default();
    match result(job) {
        None => String::new(),
        Some(JobResult::Canceled) if note.is_empty() => "Canceled".to_owned(),
        Some(JobResult::Canceled) => format!("Canceled: {note}"),
        Some(JobResult::Timeout) => "Timeout".to_owned(),
        Some(_) => match (job.waitstatus, &job.exception_type) {
            (_, Some(kind)) => format!("Exception: type={kind} note={note}"),
            (Some(status), None) => match exit_code(status) {
                code @ 129.. => format!("Signaled: {}", crate::signal::describe(code - 128)),
                code => format!("Exit {code}"),
            },
            (None, None) => String::new(),
        },
    }
}
