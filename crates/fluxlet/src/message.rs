//! What brokers and clients say to each other.
//!
//! Brokers send each other [`Message`]s, clients send their broker [`Request`]s and get
//! [`Reply`]s. Only the lead broker knows the instance, so the others pass requests and replies
//! on. A request carries a tag of the client's choice, and every reply to it carries the same tag;
//! [`Reply::Done`] and [`Reply::Error`] are always the last of them.

use std::collections::BTreeMap;

use flux_operator_flux::{IdSet, JobId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bytes::Bytes;
use crate::record::JobRecord;
use crate::submission::Submission;

/// What brokers of different versions cannot do is talk to each other, as in Flux.
pub const PROTOCOL: u32 = 1;

/// Between brokers, once the connection is known to be one of a broker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// First from the broker that connects.
    Hello(Hello),
    /// The lead takes the broker in.
    Welcome(Welcome),
    /// The lead does not take the broker in.
    Refused { reason: String },
    /// The lead has no more use for the broker.
    Shutdown,
    /// To the broker whose host is to run tasks.
    Task(TaskOrder),
    /// From that broker.
    Report(Report),
    /// From a client of the sending broker.
    Request { channel: u64, tag: u64, request: Request },
    /// That client is gone.
    Gone { channel: u64 },
    /// To a client of the receiving broker.
    Reply { channel: u64, tag: u64, reply: Reply },
}

/// Who a broker is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub rank: u32,
    pub hostname: String,
    /// How many cores the host has, for instances without configured resources.
    pub cores: u32,
    /// Why this host is not what its slot promises, if somebody asked to verify that.
    pub unfit: Option<String>,
}

/// What a broker learns from the lead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    pub size: u32,
    pub hostlist: String,
    pub configuration: Value,
}

/// Whose processes are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Run {
    Job(JobId),
    /// A command that `flux exec` started, by the lead's count.
    Exec(u64),
}

/// The two streams of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    Out,
    Error,
}

/// What the lead wants done about tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TaskOrder {
    Launch(Box<Launch>),
    Signal {
        run: Run,
        signal: i32,
    },
    /// For the standard input of all tasks; no bytes are its end.
    Input {
        run: Run,
        data: Bytes,
    },
    /// For the output file of the job, on its first host.
    Write {
        run: Run,
        stream: Stream,
        data: Bytes,
    },
    /// Nothing more will be written; answered by [`Report::Closed`].
    Close {
        run: Run,
    },
}

/// Tasks of one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    pub run: Run,
    /// Their ranks in the job.
    pub tasks: Vec<u32>,
    pub command: Vec<Bytes>,
    pub directory: Option<Bytes>,
    pub environment: Vec<(Bytes, Bytes)>,
    /// Whether standard input will come; otherwise it is empty.
    pub input: bool,
    /// The files for output and errors, on the first host of a job that asked for them.
    pub files: [Option<String>; 2],
    /// The script of a batch job, to be put into a file that the command names `{script}`.
    pub script: Option<Bytes>,
}

/// What became of tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    Output {
        run: Run,
        task: u32,
        stream: Stream,
        data: Bytes,
    },
    /// Something about the whole host that the user should read.
    Notice {
        run: Run,
        text: String,
    },
    /// A task could not be started.
    Failed {
        run: Run,
        task: u32,
        host: String,
        error: String,
        code: i32,
    },
    /// Output goes into these files.
    Opened {
        run: Run,
        files: [Option<String>; 2],
    },
    /// No task of this host could be started.
    Refused {
        run: Run,
        error: String,
    },
    /// A task ended with this wait status.
    Exited {
        run: Run,
        task: u32,
        status: i32,
    },
    Closed {
        run: Run,
    },
}

/// From a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// About the broker that the client is connected to.
    Attributes,
    SetAttribute {
        name: String,
        value: String,
    },
    Configuration,
    /// The lead's log.
    Log,
    Submit(Box<Submission>),
    /// Events of a job, its output too if wanted, until it is clean or, if not followed, until now.
    Watch {
        id: JobId,
        output: bool,
        follow: bool,
    },
    Input {
        id: JobId,
        data: Bytes,
    },
    /// Those with the ids, or all in one of the states (by number), newest first within a state.
    List {
        ids: Vec<JobId>,
        states: u64,
    },
    /// Every job by its number; what `flux job last` prints.
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
    /// For the next waitable job to end, or for this one.
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
    Queue(QueueOrder),
    QueueStatus,
    /// Until no job is active; `pending` waits also for jobs that have not started.
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
    /// Words that the brokers of a nested instance leave for each other.
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

/// How soon a job should run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Urgency {
    Value(u8),
    Default,
}

/// What to do with the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum QueueOrder {
    Start,
    Stop(Option<String>),
    Enable,
    Disable(String),
}

/// To a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The last reply to a request that was carried out.
    Done,
    /// The last reply to a request that was not.
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

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub text: String,
}

/// What clients tell apart.
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

/// A broker of the tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OverlayNode {
    pub rank: u32,
    pub host: String,
    pub status: String,
    /// What Flux says about it, if there is something to say.
    pub note: String,
    /// Seconds since the status changed.
    pub since: f64,
}

/// What a rank has and what it is doing.
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

/// Since when and why a node is not to be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    pub timestamp: f64,
    pub reason: Option<String>,
}

/// What `flux queue status` shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueStatus {
    pub disabled: Option<String>,
    /// The reason, which may be none in particular.
    pub stopped: Option<Stopped>,
    pub pending: u32,
    pub running: u32,
}

/// Why nothing is started. A type of its own: JSON has no nothing within a nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stopped {
    pub reason: Option<String>,
}

/// What `flux uptime` shows.
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
