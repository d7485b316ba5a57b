//! A lead in another Kubernetes cluster: finds an address that answers, and asks there for permission.
//!
//! With an invitation the address is that of the lender's gateway, which forwards the question to the
//! lender's operator. Without one the address is the lead's own, and there is nothing to ask.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{
    InvitedAnswer, InvitedRequest, JoinRefusal, JoinRequest, RemoteLead, Report, ReportTarget, Work,
};

use crate::arguments::CommonArguments;
use crate::operator_client::{ExchangeError, OperatorClient};
use crate::rank_plan::RankPlan;
use crate::termination::error_chain;
use crate::{dns, endpoint, secrets};

/// The timeout of one request, or of one attempt to connect: an address that does not answer must not
/// keep the others from being tried.
const TIMEOUT: Duration = Duration::from_secs(4);

/// A lead in another Kubernetes cluster.
#[derive(Debug)]
pub struct RemoteLeadSearch {
    /// Where the lead may be, the last one that answered first.
    addresses: Vec<RemoteAddress>,
    /// How to ask for permission; `None` if there is nothing to ask.
    asker: Option<Asker>,
}

#[derive(Debug)]
struct RemoteAddress {
    /// As `host:port`.
    text: String,
    /// The client for questions there.
    client: Option<OperatorClient>,
}

/// Who asks.
#[derive(Debug)]
struct Asker {
    invitation: String,
    /// `Err` with the reason if it cannot be read.
    key: Result<SealKey, String>,
    /// UID of the lender.
    cluster: String,
    /// UID of this cluster.
    joiner: String,
    joiner_name: String,
}

/// What came of one address.
enum Attempt {
    /// The broker may connect there.
    Use(SocketAddr),
    /// The lender has refused: other addresses would give the same answer.
    Refused(JoinRefusal),
    /// A refusal that is not sealed: another server may be there by now.
    Unsealed(JoinRefusal),
    /// It did not answer.
    Silent(String),
}

impl RemoteLeadSearch {
    /// The lead of a broker's plan; `None` if it is in this Kubernetes cluster.
    pub fn new(common: &CommonArguments, rank: &RankPlan) -> Option<RemoteLeadSearch> {
        let join = rank.plan.join.as_ref()?;
        let RemoteLead { addresses, invitation, joiner_name, .. } = join.remote.as_ref()?;
        let asker = invitation.as_ref().map(|invitation| Asker {
            invitation: invitation.clone(),
            key: secrets::read_invitation_key(&common.secrets).map_err(|it| error_chain(&it)),
            cluster: join.cluster.clone(),
            joiner: rank.plan.uid.clone(),
            joiner_name: joiner_name.clone(),
        });
        let addresses = addresses.iter();
        let addresses =
            addresses.map(|text| RemoteAddress { text: text.clone(), client: None }).collect();
        Some(RemoteLeadSearch { addresses, asker })
    }

    /// The address at which the broker may connect to the lead, or why it may not.
    pub fn find(&mut self, request: &JoinRequest) -> Result<SocketAddr, JoinRefusal> {
        let (mut silent, mut unsealed) = (Vec::new(), None);
        for index in 0..self.addresses.len() {
            let address = &mut self.addresses[index];
            let attempt = match &self.asker {
                Some(asker) => ask(asker, address, request),
                None => connect(address),
            };
            match attempt {
                Attempt::Use(found) => {
                    // It is tried first the next time.
                    self.addresses[..=index].rotate_right(1);
                    return Ok(found);
                }
                Attempt::Refused(refusal) => return Err(refusal),
                Attempt::Unsealed(refusal) => unsealed = unsealed.or(Some(refusal)),
                Attempt::Silent(why) => silent.push(why),
            }
        }
        if let Some(refusal) = unsealed {
            return Err(refusal);
        }
        let message = format!("no address answers: {}", silent.join("; "));
        Err(refusal("LenderUnreachable", message))
    }
}

fn refusal(reason: &str, message: String) -> JoinRefusal {
    JoinRefusal { reason: reason.to_owned(), message }
}

/// Resolves an address.
fn resolve(text: &str) -> Option<SocketAddr> {
    let (host, port) = endpoint::split_host_port(text)?;
    Some(SocketAddr::new(dns::lookup(host, TIMEOUT)?, port))
}

/// Whether something listens at an address.
fn connect(address: &RemoteAddress) -> Attempt {
    let text = &address.text;
    let Some(found) = resolve(text) else {
        return Attempt::Silent(format!("{text} cannot be resolved"));
    };
    match TcpStream::connect_timeout(&found, TIMEOUT) {
        Ok(_) => Attempt::Use(found),
        Err(error) => Attempt::Silent(format!("{text}: {error}")),
    }
}

/// Asks the lender at an address for permission.
fn ask(asker: &Asker, address: &mut RemoteAddress, request: &JoinRequest) -> Attempt {
    let key = match &asker.key {
        Ok(key) => key,
        Err(why) => return Attempt::Refused(refusal("WrongKey", why.clone())),
    };
    let Some(found) = resolve(&address.text) else {
        return Attempt::Silent(format!("{} cannot be resolved", address.text));
    };
    let target = ReportTarget { url: format!("http://{found}"), uid: asker.cluster.clone() };
    let client = match &mut address.client {
        Some(client) if client.target() == &target => client,
        client => client.insert(OperatorClient::invited(&target, &asker.invitation, key.clone())),
    };
    let asked = InvitedRequest {
        joiner: asker.joiner.clone(),
        joiner_name: asker.joiner_name.clone(),
        request: JoinRequest { refusal: None, ..request.clone() },
    };
    let reply = match client.exchange(&Report::InvitedJoinWanted(asked), TIMEOUT) {
        Ok(reply) => reply,
        Err(ExchangeError::Seal { status: 403 }) => {
            let message =
                "the lender does not accept the key of the invitation: apply its whole file \
                again"
                    .to_owned();
            return Attempt::Unsealed(refusal("WrongKey", message));
        }
        Err(ExchangeError::Seal { status: 404 }) => {
            let message =
                "the lender does not know the invitation any more: ask for another".to_owned();
            return Attempt::Unsealed(refusal("InvitationRevoked", message));
        }
        Err(error) => return Attempt::Silent(format!("{}: {}", address.text, error_chain(&error))),
    };
    let answer = reply.work.into_iter().find_map(|work| match work {
        Work::Invited(answer) => Some(answer),
        _ => None,
    });
    match answer {
        Some(InvitedAnswer::Start) => Attempt::Use(found),
        Some(InvitedAnswer::Wait(refusal)) => Attempt::Refused(refusal),
        None => Attempt::Silent(format!("{}: an answer without a decision", address.text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_plan::tests::{plan, rank};
    use flux_operator_wire::{BootPlan, BrokerFacts, JoinPlan};
    use std::net::{Ipv4Addr, TcpListener};

    fn search(addresses: &[String]) -> RemoteLeadSearch {
        let remote = RemoteLead {
            addresses: addresses.to_vec(),
            invitation: None,
            joiner_name: "ns/b".into(),
            standalone_lead: None,
        };
        let join = JoinPlan {
            lender: "a".into(),
            cluster: String::new(),
            job: String::new(),
            ranks: "2-3".parse().unwrap(),
            table: "hash".into(),
            remote: Some(remote),
        };
        let common = CommonArguments {
            plan: "/".into(),
            secrets: "/".into(),
            root: "/".into(),
            index: 0,
            flux: None,
        };
        RemoteLeadSearch::new(&common, &rank(BootPlan { join: Some(join), ..plan() }, 2)).unwrap()
    }

    fn request() -> JoinRequest {
        JoinRequest {
            index: 0,
            rank: 2,
            table: "hash".into(),
            facts: BrokerFacts::default(),
            last_error: String::new(),
            refusal: None,
        }
    }

    #[test]
    fn every_address_is_tried_and_the_one_that_answers_is_tried_first_the_next_time() {
        // A port below 1024 is not given to other tests.
        let closed = "127.0.0.1:1".to_owned();
        let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = open.local_addr().unwrap();
        let mut found = search(&[closed.clone(), "[::1".into(), address.to_string()]);
        assert_eq!(found.find(&request()), Ok(address));
        assert_eq!(found.addresses[0].text, address.to_string());
        let refusal = search(&[closed, "[::1".into()]).find(&request()).unwrap_err();
        assert_eq!(refusal.reason, "LenderUnreachable");
        assert!(refusal.message.contains("[::1 cannot be resolved"), "{refusal:?}");
    }

    #[test]
    fn without_its_key_an_invitation_is_of_no_use() {
        let mut search = search(&["127.0.0.1:1".into()]);
        search.asker = Some(Asker {
            invitation: "i".into(),
            key: Err("failed to read the key".into()),
            cluster: "c".into(),
            joiner: "j".into(),
            joiner_name: "ns/b".into(),
        });
        let refusal = search.find(&request()).unwrap_err();
        assert_eq!(refusal.reason, "WrongKey");
    }
}
