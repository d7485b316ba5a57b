//! A fake operator: receives sealed reports and replies with work.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use flux_operator_wire::seal::{Exchange, Message};
use flux_operator_wire::{
    Drain, InstanceState, JoinRequest, OrderAnswer, PendingPage, Reply, Report, ReportTarget, Work,
};

use super::report_key;

/// The UID of the cluster in tests.
const CLUSTER: &str = "cluster-uid";

/// How long the reply to a long poll is delayed.
const LONG_POLL: Duration = Duration::from_secs(2);

/// An operator that listens on loopback for as long as the test runs.
#[derive(Clone)]
pub struct FakeOperator {
    /// For the plan.
    pub target: ReportTarget,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    reports: Vec<InstanceState>,
    pending: Vec<PendingPage>,
    answers: Vec<OrderAnswer>,
    join_requests: Vec<JoinRequest>,
    nonces: HashSet<String>,
    issued: u64,
    replays: u32,
    work: Vec<Work>,
    lead: Option<IpAddr>,
    forges: bool,
}

struct Request {
    pod: String,
    nonce: String,
    seal: String,
    body: Vec<u8>,
}

impl FakeOperator {
    /// Starts to listen.
    pub fn start() -> FakeOperator {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = ReportTarget { url, uid: CLUSTER.into() };
        let operator = FakeOperator { target, state: Arc::default() };
        let own = operator.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let operator = own.clone();
                // Clients that disconnect before the reply are ignored.
                thread::spawn(move || operator.answer(stream));
            }
        });
        operator
    }

    /// Sets the address that agents get as the lead's.
    pub fn set_lead(&self, lead: IpAddr) {
        self.state.lock().unwrap().lead = Some(lead);
    }

    /// Sets the work for all replies from now on.
    pub fn set_work(&self, work: Vec<Work>) {
        self.state.lock().unwrap().work = work;
    }

    /// From now on replies are forged: garbage, and work without a seal or with an old one.
    pub fn start_forging(&self) {
        self.state.lock().unwrap().forges = true;
    }

    /// From now on replies are genuine again.
    pub fn stop_forging(&self) {
        self.state.lock().unwrap().forges = false;
    }

    /// The lead's reports.
    pub fn reports(&self) -> Vec<InstanceState> {
        self.state.lock().unwrap().reports.clone()
    }

    /// The lead's pages of pending jobs.
    pub fn pending(&self) -> Vec<PendingPage> {
        self.state.lock().unwrap().pending.clone()
    }

    /// The lead's answers about jobs.
    pub fn answers(&self) -> Vec<OrderAnswer> {
        self.state.lock().unwrap().answers.clone()
    }

    /// The requests of agents whose brokers join another cluster. Each was answered with the work.
    pub fn join_requests(&self) -> Vec<JoinRequest> {
        self.state.lock().unwrap().join_requests.clone()
    }

    /// How many requests were answered.
    pub fn request_count(&self) -> u64 {
        self.state.lock().unwrap().issued
    }

    /// How many requests had a nonce that was used before.
    pub fn replays(&self) -> u32 {
        self.state.lock().unwrap().replays
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let request = read_request(&mut stream)?;
        let nonce = request.nonce.as_str();
        let exchange = Exchange { cluster_uid: CLUSTER, pod_uid: &request.pod, nonce };
        let message = Message::Request(&request.body);
        assert!(report_key().verify(exchange, message, &request.seal), "sealed with the key");
        let report: Report = serde_json::from_slice(&request.body).ok()?;
        if self.state.lock().unwrap().forges {
            return self.forge(&mut stream, exchange, &request);
        }
        // An agent generates its first nonce itself, and gets the next one in the reply.
        let taken = self.state.lock().unwrap().nonces.remove(nonce);
        let known = taken || !nonce.starts_with("nonce-");
        if taken && report == Report::LeadWanted {
            // Delayed until the lead is known.
            while self.state.lock().unwrap().lead.is_none() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        if let (true, Report::WorkWanted { known }) = (taken, &report) {
            // Delayed until there is new work, or for a while.
            let start = Instant::now();
            while self.state.lock().unwrap().work == *known && start.elapsed() < LONG_POLL {
                thread::sleep(Duration::from_millis(10));
            }
        }
        let mut state = self.state.lock().unwrap();
        state.replays += u32::from(!known);
        state.issued += 1;
        let next = format!("nonce-{}", state.issued);
        state.nonces.insert(next.clone());
        let work = match (taken, &report) {
            (false, _) => Vec::new(),
            (true, Report::LeadWanted) => state.lead.map(Work::Lead).into_iter().collect(),
            (true, _) => state.work.clone(),
        };
        match report {
            Report::Instance(instance) if taken => state.reports.push(instance),
            Report::Pending(page) if taken => state.pending.push(page),
            Report::Job(answer) if taken => state.answers.push(answer),
            Report::JoinWanted(request) if taken => state.join_requests.push(request),
            _ => {}
        }
        drop(state);
        let body = serde_json::to_vec(&Reply { work, nonce: next, leader: None }).ok()?;
        let status = if taken { 200 } else { 401 };
        let seal = report_key().seal(exchange, Message::Answer { status, body: &body });
        respond(&mut stream, status, &seal, &body)
    }

    fn forge(
        &self,
        stream: &mut TcpStream,
        exchange: Exchange<'_>,
        request: &Request,
    ) -> Option<()> {
        let mut state = self.state.lock().unwrap();
        state.issued += 1;
        let drain = Work::Drain(Drain { ranks: "0".parse().unwrap(), since: String::new() });
        let reply = Reply { work: vec![drain], ..Reply::default() };
        let body = serde_json::to_vec(&reply).ok()?;
        let answer = Message::Answer { status: 200, body: &body };
        let seal = |exchange, message| report_key().seal(exchange, message);
        match state.issued % 6 {
            0 => stream.write_all(&[0xff; 100_000]).ok(),
            1 => respond(stream, 200, "", &body),
            // An old answer, one with another status, and one without a direction.
            2 => respond(
                stream,
                200,
                &seal(Exchange { nonce: "nonce-1", ..exchange }, answer),
                &body,
            ),
            3 => respond(stream, 202, &seal(exchange, answer), &body),
            4 => respond(stream, 200, &seal(exchange, Message::Plain(&body)), &body),
            // The request, sent back.
            _ => respond(stream, 200, &request.seal, &request.body),
        }
    }
}

fn respond(stream: &mut TcpStream, status: u16, seal: &str, body: &[u8]) -> Option<()> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} X\r\nx-flux-seal: {seal}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).ok()
}

fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        if let Ok(httparse::Status::Complete(end)) = request.parse(&bytes) {
            assert_eq!((request.method, request.path), (Some("POST"), Some("/v1/report")));
            let header = |name: &str| {
                let found = request.headers.iter().find(|header| header.name == name).unwrap();
                String::from_utf8(found.value.to_vec()).unwrap()
            };
            let length: usize = header("Content-Length").parse().unwrap();
            if bytes.len() >= end + length {
                assert_eq!(header("X-Flux-Cluster"), CLUSTER);
                return Some(Request {
                    pod: header("X-Flux-Pod"),
                    nonce: header("X-Flux-Nonce"),
                    seal: header("X-Flux-Seal"),
                    body: bytes[end..end + length].to_vec(),
                });
            }
        }
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => bytes.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
}
