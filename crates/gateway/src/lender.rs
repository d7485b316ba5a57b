//! What the gateway keeps of a MiniCluster that lends ranks by invitations.

use std::net::{IpAddr, SocketAddr};

use flux_operator_api::minicluster::{Expose, External, Invitation, Lease, LeaseState};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::core::Object;
use serde::Deserialize;

/// The fields of a MiniCluster that the gateway reads. All others are skipped while it is decoded.
pub(crate) type ObservedMiniCluster = Object<ObservedSpec, ObservedStatus>;

/// The fields of `spec` that the gateway reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ObservedSpec {
    flux: Option<ObservedFlux>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ObservedFlux {
    bursting: Option<ObservedBursting>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ObservedBursting {
    expose: Option<Expose>,
    invitations: Vec<Invitation>,
}

/// The fields of `status` that the gateway reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ObservedStatus {
    leases: Vec<Lease>,
    external: Option<External>,
}

/// The identity of a MiniCluster that lends ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LenderId {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
}

/// A MiniCluster with leases that the gateway may have to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lender {
    /// The MiniCluster.
    pub(crate) id: LenderId,
    /// The networks from which connections are accepted.
    pub(crate) sources: Sources,
    /// The address of the lead, if there is a lead.
    pub(crate) lead: Option<SocketAddr>,
    /// The leases of its invitations, except those that have been revoked.
    pub(crate) leases: Vec<LentLease>,
    /// Values that cannot be parsed, to be logged.
    pub(crate) malformed: Vec<Malformed>,
}

/// The lease of an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LentLease {
    /// The name of the invitation.
    pub(crate) invitation: String,
    /// The holder, as the status has it.
    pub(crate) holder: String,
    /// When the lease last changed. Of two leases with the same port, the older one keeps it.
    pub(crate) since: Timestamp,
    /// The port on which the gateway listens.
    pub(crate) port: u16,
    /// The number of ranks.
    pub(crate) ranks: usize,
    /// When the invitation expires.
    pub(crate) expires: Timestamp,
}

/// The networks from which connections are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// All networks.
    Any,
    /// Only these; none if the list is empty.
    Only(Vec<IpNet>),
}

impl Sources {
    /// Whether connections from this address are accepted. An IPv4 address in its IPv6 form counts
    /// as IPv4 address.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match self {
            Sources::Any => true,
            Sources::Only(networks) => networks.iter().any(|network| network.contains(&address)),
        }
    }
}

/// A value of a MiniCluster that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The field.
    pub(crate) field: &'static str,
    /// The value.
    pub(crate) value: String,
}

impl Lender {
    /// Reads a MiniCluster. None if the gateway has nothing to do for it: if it is being deleted, is
    /// not exposed by the gateway, or has no lease whose invitation still exists.
    ///
    /// A network that cannot be parsed means that no connection is accepted, and an expiry that
    /// cannot be parsed has passed.
    pub(crate) fn read(minicluster: &ObservedMiniCluster) -> Option<Lender> {
        let ObjectMeta { name, namespace, uid, deletion_timestamp, .. } = &minicluster.metadata;
        if deletion_timestamp.is_some() {
            return None;
        }
        let bursting = minicluster.spec.flux.as_ref()?.bursting.as_ref()?;
        let expose = bursting.expose.as_ref().filter(|expose| !expose.direct)?;
        let status = minicluster.status.as_ref()?;
        let leases: Vec<LentLease> = (status.leases.iter())
            .filter_map(|lease| read_lease(lease, &bursting.invitations))
            .collect();
        if leases.is_empty() {
            return None;
        }
        let mut malformed = Vec::new();
        let sources = read_sources(&expose.source_ranges, &mut malformed);
        let lead = status.external.as_ref().map(|external| external.lead_address.as_str());
        let lead = lead.filter(|lead| !lead.is_empty()).and_then(|lead| {
            let address = lead.parse().ok();
            if address.is_none() {
                malformed
                    .push(Malformed { field: "status.external.leadAddress", value: lead.into() });
            }
            address
        });
        let id = LenderId {
            namespace: namespace.clone()?,
            name: name.clone()?,
            uid: uid.clone().unwrap_or_default(),
        };
        Some(Lender { id, sources, lead, leases, malformed })
    }
}

/// The lease, if it is that of an invitation that exists, and the gateway has a port for it.
fn read_lease(lease: &Lease, invitations: &[Invitation]) -> Option<LentLease> {
    let of_invitation = lease.invitation.as_ref()?;
    if lease.state != LeaseState::Active {
        return None;
    }
    let port = u16::try_from(of_invitation.gateway_port).ok().filter(|port| *port > 0)?;
    let expires: Timestamp = of_invitation.expires.parse().ok()?;
    // An invitation of the same name that ends at another time is another one: this one was revoked.
    let exists = invitations.iter().any(|invitation| {
        invitation.name == lease.name && invitation.expires.parse().ok() == Some(expires)
    });
    exists.then(|| LentLease {
        invitation: lease.name.clone(),
        holder: lease.holder.clone(),
        since: lease.since.parse().unwrap_or(Timestamp::MAX),
        port,
        ranks: lease.rank_list().len(),
        expires,
    })
}

fn read_sources(ranges: &[String], malformed: &mut Vec<Malformed>) -> Sources {
    if ranges.is_empty() {
        return Sources::Any;
    }
    let mut networks = Vec::new();
    for range in ranges {
        match range.parse() {
            Ok(network) => networks.push(network),
            Err(_) => {
                let value = range.clone();
                malformed
                    .push(Malformed { field: "spec.flux.bursting.expose.sourceRanges", value });
            }
        }
    }
    Sources::Only(if malformed.is_empty() { networks } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{minicluster, observed};
    use serde_json::{Value, json};

    fn read(change: impl FnOnce(&mut Value)) -> Option<Lender> {
        let mut object = minicluster();
        change(&mut object);
        Lender::read(&observed(object))
    }

    #[test]
    fn a_lender_is_what_the_gateway_needs_and_nothing_else() {
        let lender = read(|_| {}).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(
            lender,
            Lender {
                id: LenderId {
                    namespace: "default".into(),
                    name: "lender".into(),
                    uid: "uid-1".into()
                },
                sources: Sources::Any,
                lead: Some("10.0.0.7:8050".parse().unwrap()),
                leases: vec![LentLease {
                    invitation: "cloud".into(),
                    holder: "invitation:cloud:2026-08-02T00:00:00Z".into(),
                    since: at("2026-08-01T00:00:00Z"),
                    port: 9001,
                    ranks: 3,
                    expires: at("2026-08-02T00:00:00Z"),
                }],
                malformed: Vec::new(),
            }
        );
    }

    #[test]
    fn these_are_not_served() {
        type Case = (&'static str, fn(&mut Value));
        let cases: [Case; 12] = [
            ("no bursting", |o| o["spec"]["flux"] = json!({})),
            ("not exposed", |o| o["spec"]["flux"]["bursting"]["expose"] = Value::Null),
            ("exposed directly", |o| {
                o["spec"]["flux"]["bursting"]["expose"]["direct"] = true.into();
            }),
            ("being deleted", |o| {
                o["metadata"]["deletionTimestamp"] = "2026-08-01T00:00:00Z".into();
            }),
            ("revoked", |o| o["spec"]["flux"]["bursting"]["invitations"] = json!([])),
            ("invited again until another time", |o| {
                o["spec"]["flux"]["bursting"]["invitations"][0]["expires"] =
                    "2026-08-03T00:00:00Z".into();
            }),
            ("leaving", |o| o["status"]["leases"][0]["state"] = "Leaving".into()),
            ("not of an invitation", |o| o["status"]["leases"][0]["invitation"] = Value::Null),
            ("without port", |o| {
                o["status"]["leases"][0]["invitation"]["gatewayPort"] = 0.into();
            }),
            ("with an impossible port", |o| {
                o["status"]["leases"][0]["invitation"]["gatewayPort"] = 70_000.into();
            }),
            ("malformed expiry", |o| {
                o["spec"]["flux"]["bursting"]["invitations"][0]["expires"] = "later".into();
                o["status"]["leases"][0]["invitation"]["expires"] = "later".into();
            }),
            ("without status", |o| o["status"] = Value::Null),
        ];
        for (case, change) in cases {
            assert_eq!(read(change), None, "{case}");
        }
    }

    #[test]
    fn the_same_expiry_may_be_written_differently() {
        let lender = read(|object| {
            object["status"]["leases"][0]["invitation"]["expires"] =
                "2026-08-02T02:00:00+02:00".into();
        });
        assert!(lender.is_some());
    }

    #[test]
    fn the_digits_after_the_second_of_an_expiry_count() {
        let expires = |invited: &str, leased: &str| {
            let lender = read(|object| {
                object["spec"]["flux"]["bursting"]["invitations"][0]["expires"] = invited.into();
                object["status"]["leases"][0]["invitation"]["expires"] = leased.into();
            });
            lender.map(|lender| lender.leases[0].expires.to_string())
        };
        let (one, other) = ("2026-08-02T00:00:00.123456Z", "2026-08-02T00:00:00.123457Z");
        assert_eq!(expires(one, one).as_deref(), Some(one));
        assert_eq!(expires(other, one), None, "invited again until another time");
    }

    #[test]
    fn a_malformed_network_means_that_no_connection_is_accepted() {
        let sources = |ranges: Value| {
            let lender = read(|o| o["spec"]["flux"]["bursting"]["expose"]["sourceRanges"] = ranges);
            let Lender { sources, malformed, .. } = lender.unwrap();
            (sources, malformed.into_iter().map(|value| value.value).collect::<Vec<_>>())
        };
        let (good, malformed) = sources(json!(["203.0.113.0/24", "2001:db8::/32"]));
        assert_eq!(malformed, Vec::<String>::new());
        for (address, accepted) in [
            ("203.0.113.7", true),
            ("::ffff:203.0.113.7", true),
            ("203.0.114.7", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(good.contain(address.parse().unwrap()), accepted, "{address}");
        }
        let (closed, malformed) = sources(json!(["0.0.0.0/0", "203.0.113.0/33", "::/0"]));
        assert_eq!(malformed, ["203.0.113.0/33"]);
        assert!(!closed.contain("203.0.113.7".parse().unwrap()));
        assert!(!closed.contain("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn an_empty_or_malformed_address_means_that_there_is_no_lead() {
        let lead = |lead: &str| {
            let lender = read(|o| o["status"]["external"]["leadAddress"] = lead.into()).unwrap();
            (lender.lead, lender.malformed.len())
        };
        assert_eq!(lead(""), (None, 0));
        assert_eq!(lead("lead:8050"), (None, 1));
        assert_eq!(lead("[2001:db8::7]:8050").0, "[2001:db8::7]:8050".parse().ok());
    }

    #[test]
    fn other_fields_are_not_decoded() {
        let lender = read(|object| {
            object["spec"]["containers"] = "not a list".into();
            object["status"]["size"] = "not a number".into();
        });
        assert!(lender.is_some());
    }
}
