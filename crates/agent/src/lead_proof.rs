//! Asks the agent at an address whether it leads this run of this cluster, and
//! answers that question (see [`RunId`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flux_operator_wire::names::{header, path, variable};
use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{BootPlan, LeadAnswer, RunId};

use crate::arguments::CommonArguments;
use crate::listener::Response;
use crate::{http, nonce, secrets};

/// How long an agent may take to answer. If it takes longer, it is asked again.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The prefix of the nonce in the query.
const NONCE_PARAMETER: &str = "nonce=";

/// The maximum length of a nonce that is answered; ours has 32 digits.
const MAX_NONCE: usize = 64;

/// What an agent needs to answer, and to check an answer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LeadProof {
    run: RunId,
    key: Option<SealKey>,
    /// This agent's broker is the lead, and the agent has not been stopped.
    leads: Arc<AtomicBool>,
}

/// The result of asking the agent at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The lead of this run.
    Lead,
    /// An agent, but not the lead of this run.
    NotLead,
    /// No valid answer.
    NoAnswer,
}

impl LeadProof {
    /// The proof for the cluster of `plan`. `None` where agents have no port to answer on, or
    /// where clusters have no UID.
    pub fn read(common: &CommonArguments, plan: &BootPlan, leads: bool) -> Option<LeadProof> {
        if plan.uid.is_empty() || plan.ready_port == 0 {
            return None;
        }
        if let Some(join) = &plan.join {
            // The lender's agents seal their answers with a key that this cluster does not have.
            // That only the right lead is used is checked by its certificate.
            let run = RunId { cluster: join.cluster.clone(), job: join.job.clone() };
            return Some(LeadProof { run, key: None, leads: Arc::default() });
        }
        let job = std::env::var(variable::JOB_UID).unwrap_or_default();
        let run = RunId { cluster: plan.uid.clone(), job };
        // The same key as for reports. All agents have it, or none.
        let key = plan.report.as_ref().and_then(|_| secrets::read_report_key(&common.secrets).ok());
        Some(LeadProof { run, key, leads: Arc::new(AtomicBool::new(leads)) })
    }

    /// From now on this agent does not lead, because it is stopping.
    pub fn resign(&self) {
        self.leads.store(false, Ordering::Relaxed);
    }

    /// The answer to `GET /v1/lead` with this query.
    pub fn response(&self, query: &str) -> Response {
        let nonce = query.strip_prefix(NONCE_PARAMETER).filter(|nonce| nonce.len() <= MAX_NONCE);
        let Some(nonce) = nonce else { return Response::new(400, "a nonce is missing\n") };
        let leads = self.leads.load(Ordering::Relaxed);
        let (body, seal) = self.run.answer(leads, nonce, self.key.as_ref());
        Response { status: 200, header: seal.map(|seal| (header::SEAL, seal)), body }
    }

    /// Asks the agent at `address`.
    pub fn probe(&self, address: SocketAddr) -> ProbeResult {
        let Ok(nonce) = nonce::fresh() else { return ProbeResult::NoAnswer };
        let target = format!("{}?{NONCE_PARAMETER}{nonce}", path::LEAD);
        let Ok(answer) = http::get(address, &target, TIMEOUT) else { return ProbeResult::NoAnswer };
        if serde_json::from_slice::<LeadAnswer>(&answer.body).is_err() {
            // An agent of an older version, or another program.
            return ProbeResult::NoAnswer;
        }
        let (seal, key) = (answer.seal.as_deref(), self.key.as_ref());
        match self.run.is_led_by(&answer.body, seal, &nonce, key) {
            true => ProbeResult::Lead,
            false => ProbeResult::NotLead,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::listener::{self, Request};
    use std::net::{Ipv4Addr, TcpListener};

    /// The proof of an agent of this cluster.
    pub fn proof(cluster: &str, leads: bool) -> LeadProof {
        LeadProof {
            run: RunId { cluster: cluster.into(), job: "job".into() },
            key: Some(SealKey::from_bytes([7; 32])),
            leads: Arc::new(AtomicBool::new(leads)),
        }
    }

    /// Serves this proof, and returns the port.
    pub fn agent(proof: LeadProof) -> u16 {
        serve(move |request| proof.response(request.query))
    }

    fn serve(handler: impl Fn(&Request<'_>) -> Response + Send + 'static) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        listener::serve_at(listener, Duration::from_secs(60), handler).unwrap();
        port
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    #[test]
    fn a_lead_is_accepted_until_it_is_stopped() {
        let lead = proof("uid", true);
        let address = at(agent(lead.clone()));
        let worker = proof("uid", false);
        assert_eq!(worker.probe(address), ProbeResult::Lead);
        lead.resign();
        assert_eq!(worker.probe(address), ProbeResult::NotLead);
    }

    #[test]
    fn another_cluster_and_another_key_are_not_accepted() {
        let lead = proof("uid", true);
        let address = at(agent(lead.clone()));
        assert_eq!(proof("other", false).probe(address), ProbeResult::NotLead);
        let key = Some(SealKey::from_bytes([8; 32]));
        assert_eq!(LeadProof { key, ..proof("uid", false) }.probe(address), ProbeResult::NotLead);
    }

    #[test]
    fn an_invalid_answer_counts_as_no_answer() {
        let refuses = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.local_addr().unwrap()
        };
        assert_eq!(proof("uid", false).probe(refuses), ProbeResult::NoAnswer);
        let older_agent = at(serve(|_| Response::new(200, "ready\n")));
        assert_eq!(proof("uid", false).probe(older_agent), ProbeResult::NoAnswer);
    }

    #[test]
    fn a_request_without_a_nonce_is_rejected() {
        for query in ["", "nonce", &format!("nonce={}", "a".repeat(65))] {
            assert_eq!(proof("uid", true).response(query).status, 400, "{query}");
        }
    }
}
