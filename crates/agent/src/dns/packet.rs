//! DNS queries and responses (RFC 1035).
//!
//! Responses are untrusted input. A packet that does not answer exactly our
//! query is ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

/// How many aliases (CNAME) are followed within one response.
const MAX_ALIASES: usize = 16;

/// The address family to query for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 (A).
    V4,
    /// IPv6 (AAAA).
    V6,
}

/// A server's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsResponse {
    /// The name has these addresses, at least one.
    Addresses(Vec<IpAddr>),
    /// The name has no address of this family.
    NoAddress,
    /// There is no such name.
    NoName,
    /// The server failed.
    Failure,
}

/// Builds a query for the addresses of `name`. `None` if that is not a valid name.
pub fn build_query(id: u16, name: &str, family: Family) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).ok()?;
    packet.questions.push(Question::new(
        name,
        QTYPE::TYPE(record_type(family)),
        CLASS::IN.into(),
        false,
    ));
    packet.build_bytes_vec().ok()
}

/// Parses a response. `None` if it does not answer the query that [`build_query`] builds from the
/// same arguments.
pub fn parse_response(bytes: &[u8], id: u16, name: &str, family: Family) -> Option<DnsResponse> {
    let packet = Packet::parse(bytes).ok()?;
    let name = Name::new(name).ok()?;
    let [asked] = packet.questions.as_slice() else { return None };
    let ours = packet.id() == id
        && packet.has_flags(PacketFlag::RESPONSE)
        && is_same_name(&asked.qname, &name)
        && asked.qtype == QTYPE::TYPE(record_type(family))
        && asked.qclass == QCLASS::CLASS(CLASS::IN);
    if !ours {
        return None;
    }
    Some(match packet.rcode() {
        RCODE::NoError => match addresses(&packet, name, family) {
            addresses if addresses.is_empty() => DnsResponse::NoAddress,
            addresses => DnsResponse::Addresses(addresses),
        },
        RCODE::NameError => DnsResponse::NoName,
        _ => DnsResponse::Failure,
    })
}

/// The addresses of a name, following its aliases.
fn addresses(packet: &Packet<'_>, mut name: Name<'_>, family: Family) -> Vec<IpAddr> {
    for _ in 0..MAX_ALIASES {
        let mut alias = None;
        let mut addresses = Vec::new();
        let records = packet.answers.iter().filter(|record| record.class == CLASS::IN);
        for record in records.filter(|record| is_same_name(&record.name, &name)) {
            match (&record.rdata, family) {
                (RData::A(data), Family::V4) => {
                    addresses.push(IpAddr::V4(Ipv4Addr::from(data.address)));
                }
                (RData::AAAA(data), Family::V6) => {
                    addresses.push(IpAddr::V6(Ipv6Addr::from(data.address)));
                }
                (RData::CNAME(target), _) => alias = Some(target.0.clone().into_owned()),
                _ => {}
            }
        }
        match alias {
            Some(alias) if addresses.is_empty() => name = alias,
            _ => return addresses,
        }
    }
    Vec::new()
}

/// Compares names, ignoring case.
fn is_same_name(one: &Name<'_>, other: &Name<'_>) -> bool {
    one.to_string().eq_ignore_ascii_case(&other.to_string())
}

fn record_type(family: Family) -> TYPE {
    match family {
        Family::V4 => TYPE::A,
        Family::V6 => TYPE::AAAA,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{A, AAAA, CNAME};

    /// A packet that answers `question` with these records.
    pub fn reply(question: &[u8], code: RCODE, records: Vec<(&str, RData<'_>)>) -> Vec<u8> {
        let asked = Packet::parse(question).unwrap();
        let mut packet = Packet::new_reply(asked.id());
        *packet.rcode_mut() = code;
        packet.questions = asked.questions;
        for (name, data) in records {
            let record = ResourceRecord::new(Name::new(name).unwrap(), CLASS::IN, 5, data);
            packet.answers.push(record);
        }
        packet.build_bytes_vec_compressed().unwrap()
    }

    fn v4(address: [u8; 4]) -> RData<'static> {
        RData::A(A { address: u32::from(Ipv4Addr::from(address)) })
    }

    fn alias(name: &str) -> RData<'_> {
        RData::CNAME(CNAME(Name::new(name).unwrap()))
    }

    #[test]
    fn an_address_is_found_directly_and_through_aliases() {
        let asked = build_query(7, "fs-0.fs", Family::V4).unwrap();
        let expected = Some(DnsResponse::Addresses(vec![[10, 0, 0, 1].into()]));
        for records in [
            vec![("fs-0.fs", v4([10, 0, 0, 1]))],
            vec![("FS-0.fs", v4([10, 0, 0, 1]))],
            vec![("b", v4([10, 0, 0, 1])), ("fs-0.fs", alias("a")), ("a", alias("b"))],
        ] {
            let bytes = reply(&asked, RCODE::NoError, records);
            assert_eq!(parse_response(&bytes, 7, "fs-0.fs", Family::V4), expected);
        }
        let asked = build_query(7, "x", Family::V6).unwrap();
        let data = RData::AAAA(AAAA { address: 1 });
        let bytes = reply(&asked, RCODE::NoError, vec![("x", data)]);
        assert_eq!(
            parse_response(&bytes, 7, "x", Family::V6),
            Some(DnsResponse::Addresses(vec!["::1".parse().unwrap()]))
        );
    }

    #[test]
    fn a_pod_that_is_replaced_has_two_addresses_for_a_while() {
        let asked = build_query(7, "x", Family::V4).unwrap();
        let records = vec![("x", v4([10, 0, 0, 1])), ("x", v4([10, 0, 0, 2]))];
        let bytes = reply(&asked, RCODE::NoError, records);
        let expected = vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        assert_eq!(
            parse_response(&bytes, 7, "x", Family::V4),
            Some(DnsResponse::Addresses(expected))
        );
    }

    #[test]
    fn a_negative_response_is_distinguished_from_a_failure() {
        let asked = build_query(7, "x", Family::V4).unwrap();
        for (code, records, expected) in [
            (RCODE::NameError, vec![], DnsResponse::NoName),
            (RCODE::NoError, vec![], DnsResponse::NoAddress),
            (RCODE::NoError, vec![("other", v4([1, 2, 3, 4]))], DnsResponse::NoAddress),
            (RCODE::NoError, vec![("x", alias("y")), ("y", alias("x"))], DnsResponse::NoAddress),
            (RCODE::ServerFailure, vec![], DnsResponse::Failure),
            (RCODE::Refused, vec![], DnsResponse::Failure),
        ] {
            let bytes = reply(&asked, code, records);
            assert_eq!(parse_response(&bytes, 7, "x", Family::V4), Some(expected));
        }
    }

    #[test]
    fn a_response_to_another_query_is_ignored() {
        let asked = build_query(7, "x", Family::V4).unwrap();
        let bytes = reply(&asked, RCODE::NoError, vec![("x", v4([10, 0, 0, 1]))]);
        assert_eq!(parse_response(&bytes, 8, "x", Family::V4), None);
        assert_eq!(parse_response(&bytes, 7, "y", Family::V4), None);
        assert_eq!(parse_response(&bytes, 7, "x", Family::V6), None);
        assert_eq!(parse_response(&asked, 7, "x", Family::V4), None);
    }

    #[test]
    fn an_invalid_name_is_not_queried() {
        for name in ["a".repeat(64), "a.".repeat(200)] {
            assert_eq!(build_query(1, &name, Family::V4), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            parse_response(&bytes, 7, "x", Family::V4);
        }

        #[test]
        fn a_corrupted_response_does_not_panic(
            cut in 0_usize..200,
            place in 0_usize..200,
            value in any::<u8>(),
        ) {
            let asked = build_query(7, "a.bc.def", Family::V4).unwrap();
            let records = vec![("a.bc.def", alias("b.bc.def")), ("b.bc.def", v4([1, 2, 3, 4]))];
            let mut bytes = reply(&asked, RCODE::NoError, records);
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
            bytes.truncate(bytes.len().min(cut.max(12)));
            parse_response(&bytes, 7, "a.bc.def", Family::V4);
        }
    }
}
