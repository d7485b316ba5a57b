//! A client of the operator: it sends reports, and receives work.
//!
//! Requests and replies are sealed with the cluster's key over a nonce that the
//! operator chose and that is used once (see `flux_operator_wire::seal`). The
//! first request has a nonce of our own, so that an old reply cannot be replayed;
//! the reply to it contains the nonce to use next. A reply that is not sealed for
//! this request is ignored.

use std::time::Duration;

use flux_operator_wire::names::{header, path, variable};
use flux_operator_wire::seal::{Exchange, Message, SealKey};
use flux_operator_wire::{Reply, Report, ReportTarget};

use crate::arguments::CommonArguments;
use crate::http::{self, HttpError};
use crate::termination::{error_chain, log};
use crate::{nonce, secrets};

/// How often one report is sent, because the nonce was unknown or because of a redirect to the
/// leader: for a while, two replicas may redirect to each other.
const MAX_ATTEMPTS: u32 = 6;

/// A client of the operator.
#[derive(Debug)]
pub struct OperatorClient {
    target: ReportTarget,
    pod: String,
    key: SealKey,
    /// The URL of the replica that leads, as far as known.
    url: String,
    /// The nonce of the next request; `None` to generate one.
    nonce: Option<String>,
    /// The invitation whose key it has; `None` for the cluster's own.
    invitation: Option<String>,
}

/// Why a report was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The operator did not answer.
    #[error("failed to reach the operator")]
    Http {
        /// Why.
        source: HttpError,
    },
    /// The system's random number generator failed.
    #[error("failed to generate a nonce")]
    Nonce {
        /// Why.
        source: getrandom::Error,
    },
    /// The reply was not sealed with the key, or not for this request.
    #[error("the reply with status {status} was not sealed by the operator")]
    Seal {
        /// The status code.
        status: u16,
    },
    /// The seal is valid, but the reply cannot be parsed.
    #[error("failed to parse the operator's reply")]
    Reply {
        /// Why.
        source: serde_json::Error,
    },
    /// The operator rejected the report.
    #[error("the operator answered with status {status}")]
    Rejected {
        /// The status code.
        status: u16,
    },
}

impl OperatorClient {
    /// Creates a client for the plan's target. Without a key it prints a message and returns
    /// `None`.
    pub fn new(common: &CommonArguments, target: &ReportTarget) -> Option<OperatorClient> {
        match secrets::read_report_key(&common.secrets) {
            Ok(key) => {
                let pod = std::env::var(variable::POD_UID).unwrap_or_default();
                Some(OperatorClient::with_key(target, pod, key))
            }
            Err(error) => {
                // Reports are optional: the cluster runs without them.
                log(&error_chain(&error));
                None
            }
        }
    }

    /// Creates a second client for concurrent requests, with nonces of its own.
    pub fn for_long_polls(&self) -> OperatorClient {
        OperatorClient::with_key(&self.target, format!("{}/work", self.pod), self.key.clone())
    }

    fn with_key(target: &ReportTarget, pod: String, key: SealKey) -> OperatorClient {
        let url = target.url.clone();
        OperatorClient { target: target.clone(), pod, key, url, nonce: None, invitation: None }
    }

    /// Creates a client of an operator in another Kubernetes cluster, with the key of an invitation.
    pub fn invited(target: &ReportTarget, invitation: &str, key: SealKey) -> OperatorClient {
        let pod = std::env::var(variable::POD_UID).unwrap_or_default();
        let invitation = Some(invitation.to_owned());
        OperatorClient { invitation, ..OperatorClient::with_key(target, pod, key) }
    }

    /// Whose client it is.
    pub fn target(&self) -> &ReportTarget {
        &self.target
    }

    /// Sends a report and returns the reply. `limit` is the timeout of one request.
    pub fn exchange(&mut self, report: &Report, limit: Duration) -> Result<Reply, ExchangeError> {
        let body = serde_json::to_vec(report).expect("numbers and text are JSON");
        let mut last = ExchangeError::Rejected { status: 0 };
        for _ in 0..MAX_ATTEMPTS {
            match self.send(&body, limit) {
                Ok(SendResult::Accepted(reply)) => return Ok(reply),
                Ok(SendResult::Retry(status)) => last = ExchangeError::Rejected { status },
                Err(error) => {
                    // The replica that answers next time may not know our nonce.
                    self.url.clone_from(&self.target.url);
                    self.nonce = None;
                    return Err(error);
                }
            }
        }
        Err(last)
    }

    fn send(&mut self, body: &[u8], limit: Duration) -> Result<SendResult, ExchangeError> {
        // Used once: whatever happens, the next request has another nonce.
        let nonce = match self.nonce.take() {
            Some(nonce) => nonce,
            None => nonce::fresh().map_err(|source| ExchangeError::Nonce { source })?,
        };
        let exchange =
            Exchange { cluster_uid: &self.target.uid, pod_uid: &self.pod, nonce: &nonce };
        let seal = self.key.seal(exchange, Message::Request(body));
        let mut headers = vec![
            (header::CLUSTER, self.target.uid.as_str()),
            (header::POD, self.pod.as_str()),
            (header::NONCE, nonce.as_str()),
            (header::SEAL, seal.as_str()),
        ];
        headers.extend(self.invitation.iter().map(|it| (header::INVITATION, it.as_str())));
        let response = http::post(&self.url, path::REPORT, &headers, body, limit)
            .map_err(|source| ExchangeError::Http { source })?;
        let seal = response.seal.as_deref().unwrap_or_default();
        let answer = Message::Answer { status: response.status, body: &response.body };
        if !self.key.verify(exchange, answer, seal) {
            return Err(ExchangeError::Seal { status: response.status });
        }
        let reply: Reply = serde_json::from_slice(&response.body)
            .map_err(|source| ExchangeError::Reply { source })?;
        self.nonce = Some(reply.nonce.clone());
        if reply.leader.is_some() && self.invitation.is_some() {
            // Only the gateway can be reached. The next request may be forwarded to the leader.
            return Ok(SendResult::Retry(response.status));
        }
        if let Some(leader) = &reply.leader {
            self.url =
                if leader.contains("://") { leader.clone() } else { format!("http://{leader}") };
            return Ok(SendResult::Retry(response.status));
        }
        match response.status {
            200..=299 => Ok(SendResult::Accepted(reply)),
            401 => Ok(SendResult::Retry(401)),
            status => Err(ExchangeError::Rejected { status }),
        }
    }
}

enum SendResult {
    Accepted(Reply),
    /// Not accepted, but the next nonce, or the leader's URL, is now known.
    Retry(u16),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    const LIMIT: Duration = Duration::from_secs(20);

    fn key() -> SealKey {
        SealKey::from_bytes([7; 32])
    }

    /// Builds a response from the nonce of a request: status, body, and the nonce to seal it
    /// over.
    type AnswerFn = Box<dyn Fn(&str) -> (u16, Reply, String) + Send>;

    /// A response with this status and next nonce, sealed correctly.
    fn answers(status: u16, next: &'static str) -> AnswerFn {
        Box::new(move |nonce| (status, reply(next), nonce.into()))
    }

    /// Answers one request after the other. The handle returns their nonces.
    fn serve(answers: Vec<AnswerFn>) -> (ReportTarget, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = thread::spawn(move || {
            answers.iter().map(|answer| answer_one(&listener, answer)).collect()
        });
        (ReportTarget { url, uid: "uid".into() }, asked)
    }

    fn answer_one(listener: &TcpListener, answer: &AnswerFn) -> String {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        while !text.ends_with('}') {
            let mut buffer = [0; 1024];
            let read = stream.read(&mut buffer).unwrap();
            text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        let header = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        let (nonce, seal) = (header("X-Flux-Nonce:"), header("X-Flux-Seal:"));
        let body = text.split_once("\r\n\r\n").unwrap().1;
        let exchange = |nonce| Exchange { cluster_uid: "uid", pod_uid: "pod", nonce };
        assert!(key().verify(exchange(&nonce), Message::Request(body.as_bytes()), &seal));
        let (status, reply, sealed_over) = answer(&nonce);
        let body = serde_json::to_vec(&reply).unwrap();
        let answer = Message::Answer { status, body: &body };
        let seal = key().seal(exchange(&sealed_over), answer);
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\nX-Flux-Seal: {seal}\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        nonce
    }

    fn reply(nonce: &str) -> Reply {
        Reply { nonce: nonce.into(), ..Reply::default() }
    }

    fn operator(target: &ReportTarget) -> OperatorClient {
        OperatorClient::with_key(target, "pod".into(), key())
    }

    #[test]
    fn the_first_request_gets_a_nonce_and_each_later_one_uses_a_new_one() {
        let (target, asked) =
            serve(vec![answers(401, "one"), answers(200, "two"), answers(200, "three")]);
        let mut operator = operator(&target);
        assert_eq!(operator.exchange(&Report::LeadWanted, LIMIT).unwrap().nonce, "two");
        assert_eq!(operator.exchange(&Report::LeadWanted, LIMIT).unwrap().nonce, "three");
        let nonces = asked.join().unwrap();
        assert_eq!(
            (nonces[0].len(), &nonces[1..]),
            (32, &["one".to_owned(), "two".to_owned()][..])
        );
    }

    #[test]
    fn a_reply_to_another_request_is_rejected() {
        let (target, asked) = serve(vec![
            answers(401, "one"),
            Box::new(|_| (200, reply("two"), "an older one".into())),
            answers(401, "three"),
            answers(503, "four"),
        ]);
        let mut operator = operator(&target);
        let refused = operator.exchange(&Report::LeadWanted, LIMIT);
        assert!(matches!(refused, Err(ExchangeError::Seal { status: 200 })));
        let failed = operator.exchange(&Report::LeadWanted, LIMIT);
        assert!(matches!(failed, Err(ExchangeError::Rejected { status: 503 })));
        let asked = asked.join().unwrap();
        assert_eq!((asked[1].as_str(), asked[3].as_str()), ("one", "three"));
        assert_ne!(asked[0], asked[2], "a nonce of our own is used only once too");
    }

    /// The response of a replica that redirects to the leader.
    fn follower(leader: &str) -> AnswerFn {
        let leader = leader.to_owned();
        Box::new(move |nonce| {
            (503, Reply { leader: Some(leader.clone()), ..reply("follower's") }, nonce.into())
        })
    }

    #[test]
    fn a_replica_that_does_not_lead_redirects_to_the_leader() {
        let (leader, asked) =
            serve(vec![answers(401, "one"), answers(200, "two"), answers(200, "three")]);
        let address = leader.url.strip_prefix("http://").unwrap();
        // As an address, and as a whole URL.
        for named in [address, &leader.url] {
            let (target, asked_first) = serve(vec![follower(named)]);
            let mut operator = operator(&target);
            assert!(operator.exchange(&Report::LeadWanted, LIMIT).is_ok(), "{named}");
            assert_eq!(operator.url, leader.url, "it is asked first the next time");
            assert_eq!(asked_first.join().unwrap().len(), 1);
            if named == leader.url {
                assert_eq!(asked.join().unwrap()[1..], ["one", "follower's"]);
                return;
            }
        }
    }

    #[test]
    fn a_lost_leader_is_searched_for_again() {
        // Nothing listens there any more.
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let (target, _) = serve(vec![follower(&closed.to_string()), answers(200, "one")]);
        let mut operator = operator(&target);
        let failed = operator.exchange(&Report::LeadWanted, LIMIT);
        assert!(matches!(failed, Err(ExchangeError::Http { .. })));
        assert_eq!(operator.exchange(&Report::LeadWanted, LIMIT).unwrap().nonce, "one");
    }

    #[test]
    fn redirects_between_replicas_are_limited() {
        let (target, asked) = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let itself = url.clone();
            let asked = thread::spawn(move || {
                (0..MAX_ATTEMPTS)
                    .map(|_| answer_one(&listener, &follower(&itself)))
                    .collect::<Vec<_>>()
            });
            (ReportTarget { url, uid: "uid".into() }, asked)
        };
        let mut operator = operator(&target);
        let refused = operator.exchange(&Report::LeadWanted, LIMIT);
        assert!(matches!(refused, Err(ExchangeError::Rejected { status: 503 })));
        assert_eq!(asked.join().unwrap().len(), MAX_ATTEMPTS as usize);
    }

    #[test]
    fn attempts_with_an_unknown_nonce_are_limited() {
        let (leader, _) = serve((0..MAX_ATTEMPTS).map(|_| answers(401, "x")).collect());
        let mut operator = operator(&leader);
        let refused = operator.exchange(&Report::LeadWanted, LIMIT);
        assert!(matches!(refused, Err(ExchangeError::Rejected { status: 401 })));
    }
}
