//! The messages between brokers and clients.
//!
//! Brokers send each other [`Message`]s, clients send their broker [`Request`]s and receive
//! [`Reply`]s. Only the lead's broker has the instance, so the others forward requests and replies.
//! A request has a tag chosen by the client, and every reply to it has the same tag;
//! [`Reply::Done`] or [`Reply::Error`] is always the last one.

use std::collections::BTreeMap;

use flux_operator_flux::{IdSet, JobId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bytes::Bytes;
use crate::record::JobRecord;
use crate::submission::Submission;

/// The version of the protocol. As in Flux, brokers of different versions cannot connect.
pub const PROTOCOL: u32 = 1;

/// A message between brokers, after the handshake.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// The first message of the broker that connects.
    Hello(Hello),
    /// The lead accepts the broker.
    Welcome(Welcome),
    /// The lead rejects the broker.
    Refused { reason: String },
    /// The lead shuts the broker down, or a worker announces that it leaves.
    Shutdown,
    /// A request to the broker that runs the tasks.
    Task(TaskRequest),
    /// A report of that broker.
    Report(Report),
    /// A request of a client of the sending broker.
    Request { channel: u64, tag: u64, request: Request },
    /// That client has disconnected.
    Gone { channel: u64 },
    /// A reply to a client of the receiving broker.
    Reply { channel: u64, tag: u64, reply: Reply },
}

/// How a broker introduces itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub rank: u32,
    pub hostname: String,
    /// How many cores the host has, for instances without configured resources.
    pub cores: u32,
    /// Why this host does not match its slot, if that is to be verified.
    pub unfit: Option<String>,
}

/// What the lead sends to a broker that it accepts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    pub size: u32,
    pub hostlist: String,
    pub configuration: Value,
}

/// Identifies the processes of a job or of a `flux exec` command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskOwner {
    Job(JobId),
    /// A command of `flux exec`, numbered by the lead.
    Exec(u64),
}

/// The two output streams of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    Out,
    Error,
}

/// A request of the lead about tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TaskRequest {
    Launch(Box<Launch>),
    Signal {
        owner: TaskOwner,
        signal: i32,
    },
    /// Standard input for all tasks; empty data closes it.
    Input {
        run: TaskOwner,
        data: Bytes,
    },
    /// Data for the output file of the job, on its first host.
    Write {
        run: TaskOwner,
        stream: Stream,
        data: Bytes,
    },
    /// Close the output files; answered by [`Report::Closed`].
    Close {
        run: TaskOwner,
    },
}

/// The tasks to start on one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    pub run: TaskOwner,
    /// Their ranks in the job.
    pub tasks: Vec<u32>,
    pub command: Vec<Bytes>,
    pub directory: Option<Bytes>,
    pub environment: Vec<(Bytes, Bytes)>,
    /// Whether standard input will be sent; otherwise it is empty.
    pub input: bool,
    /// The files for standard output and standard error, on the first host of a job that uses them.
    pub files: [Option<String>; 2],
    /// The script of a batch job, to be written to a file that replaces `{script}` in the command.
    pub script: Option<Bytes>,
}

/// A report about tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    Output {
        run: TaskOwner,
        task: u32,
        stream: Stream,
        data: Bytes,
    },
    /// A message about the whole host, for the user.
    Notice {
        run: TaskOwner,
        text: String,
    },
    /// A task could not be started.
    Failed {
        run: TaskOwner,
        task: u32,
        host: String,
        error: String,
        code: i32,
    },
    /// Output is written to these files.
    Opened {
        run: TaskOwner,
        files: [Option<String>; 2],
    },
    /// No task of this host could be started.
    Refused {
        run: TaskOwner,
        error: String,
    },
    /// A task exited with this wait status.
    Exited {
        run: TaskOwner,
        task: u32,
        status: i32,
    },
    Closed {
        run: TaskOwner,
    },
}

/// A request of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The attributes of the broker that the client is connected to.
    Attributes,
    SetAttribute {
        name: String,
        value: String,
    },
    Configuration,
    /// The lead's log.
    Log,
    Submit(Box<Submission>),
    /// The events of a job, and its output if `output`: until it is clean if `follow`, else until
    /// now.
    Watch {
        id: JobId,
        output: bool,
        follow: bool,
    },
    Input {
        id: JobId,
        data: Bytes,
    },
    /// The jobs with these IDs, or all in these states (by number): pending jobs by priority, then
    /// running and inactive ones, latest first.
    List {
        ids: Vec<JobId>,
        states: u64,
    },
    /// The IDs of all jobs, for `flux job last`.
    Last,
    Info {
        id: JobId,
        key: String,
    },
    Raise {
        id: JobId,
        kind: String,
        severity: u8,
        note: String,
    },
    Kill {
        id: JobId,
        signal: i32,
    },
    Urgency {
        id: JobId,
        urgency: Urgency,
    },
    Memo {
        id: JobId,
        memo: Vec<(String, Value)>,
    },
    /// Waits for the next waitable job to finish, or for this one.
    Wait {
        id: Option<JobId>,
    },
    Overlay,
    Resources,
    Drain {
        targets: String,
        reason: Option<String>,
        force: bool,
    },
    Undrain {
        targets: String,
    },
    Queue(QueueChange),
    QueueStatus,
    /// Waits until no job is running; with `pending`, until no job is active.
    Idle {
        pending: bool,
    },
    Exec {
        ranks: Option<IdSet>,
        exclude: IdSet,
        command: Vec<Bytes>,
        directory: Option<Bytes>,
        environment: Vec<(Bytes, Bytes)>,
    },
    /// Publishes a value for the other brokers of a nested instance.
    Put {
        id: JobId,
        key: String,
        value: String,
    },
    Get {
        id: JobId,
        key: String,
    },
    Uptime,
    Shutdown,
}

/// The urgency of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Urgency {
    Value(u8),
    Default,
}

/// A change of the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum QueueChange {
    Start,
    Stop(Option<String>),
    Enable,
    Disable(String),
}

/// A reply to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The last reply to a request that succeeded.
    Done,
    /// The last reply to a request that failed.
    Error(Refusal),
    Text(String),
    Value(Value),
    Attributes(BTreeMap<String, String>),
    Id(JobId),
    Event(Event),
    Output {
        task: u32,
        stream: Stream,
        data: Bytes,
    },
    Notice(String),
    Job(Box<JobRecord>),
    Waited {
        id: JobId,
        status: i32,
        note: String,
    },
    Overlay(Vec<OverlayNode>),
    Resources(Vec<ResourceNode>),
    Queue(QueueStatus),
    Uptime(UptimeStatus),
    Exited {
        rank: u32,
        status: i32,
    },
    Unreachable {
        rank: u32,
        error: String,
        code: i32,
    },
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub text: String,
}

/// The kinds of refusals that clients distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    NoSuchJob,
    NotFound,
    Invalid,
    Exists,
    Inactive,
    NotWaitable,
    Unavailable,
}

/// One line of a job's event log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub timestamp: f64,
    pub name: String,
    /// Keys in Flux's order, which a JSON object would lose.
    #[serde(default)]
    pub context: Vec<(String, Value)>,
}

/// A broker in the tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OverlayNode {
    pub rank: u32,
    pub host: String,
    pub status: String,
    /// Flux's note about it, if any.
    pub note: String,
    /// Seconds since the status changed.
    pub since: f64,
}

/// The resources of a rank and their state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResourceNode {
    pub rank: u32,
    pub host: String,
    pub cores: IdSet,
    pub gpus: IdSet,
    pub used_cores: IdSet,
    pub used_gpus: IdSet,
    pub online: bool,
    pub excluded: bool,
    pub drained: Option<Drain>,
    pub properties: Vec<String>,
}

/// When and why a node was drained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    pub timestamp: f64,
    pub reason: Option<String>,
}

/// The output of `flux queue status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueStatus {
    pub disabled: Option<String>,
    /// Set if scheduling is stopped.
    pub stopped: Option<SchedulingStopped>,
    pub pending: u32,
    pub running: u32,
}

/// Why scheduling is stopped, if there is a reason. A separate type, because JSON cannot represent
/// nested options.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SchedulingStopped {
    pub reason: Option<String>,
}

/// The output of `flux uptime`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UptimeStatus {
    pub state: String,
    pub seconds: f64,
    pub size: u32,
    pub offline: u32,
    pub drained: u32,
    pub owner: u32,
    pub level: u32,
}
