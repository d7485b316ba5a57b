//! Table tests of [`HostList`]: the vectors of RFC 29 and of libhostlist, and our own.

use super::*;

fn list(text: &str) -> HostList {
    text.parse().unwrap()
}

fn hosts(text: &str) -> Vec<String> {
    list(text).iter().collect()
}

#[test]
fn a_slice_has_the_hosts_that_an_iterator_would_have() {
    for text in ["", "a", "fs-[0-9]", "n[08-11]-e,x,fs-[0-3],y[1-2]", "a-[1,3,5-9]"] {
        let list: HostList = text.parse().unwrap();
        for (start, count) in [(0, 0), (0, 3), (2, 4), (3, 100), (50, 1), (1, usize::MAX)] {
            let slice = list.slice(start, count);
            let expected: Vec<String> = list.iter().skip(start).take(count).collect();
            assert_eq!(slice.iter().collect::<Vec<_>>(), expected, "{text} {start} {count}");
            assert_eq!(slice.len(), expected.len());
            assert_eq!(slice.to_string().parse::<HostList>().unwrap().len(), slice.len());
        }
    }
}

#[test]
fn expands_the_vectors_of_rfc_29() {
    for (text, expanded) in [
        ("", ""),
        ("foox,fooy,fooz", "foox,fooy,fooz"),
        ("[1-3,5-6]", "1,2,3,5,6"),
        ("foo[1-5]", "foo1,foo2,foo3,foo4,foo5"),
        ("foo[0-4]-eth2", "foo0-eth2,foo1-eth2,foo2-eth2,foo3-eth2,foo4-eth2"),
        ("foo1,foo1,foo1", "foo1,foo1,foo1"),
        ("[00-02]", "00,01,02"),
        ("[00-2]", "00,01,02"),
        ("foo[1,1,2,1]", "foo1,foo1,foo2,foo1"),
        // From the text of the RFC.
        ("[5,4,10,11,12,13]", "5,4,10,11,12,13"),
        ("[005,4,11-13]", "005,004,011,012,013"),
        (
            "host[0-10,12]",
            "host0,host1,host2,host3,host4,host5,host6,host7,host8,host9,host10,host12",
        ),
    ] {
        assert_eq!(hosts(text).join(","), expanded, "{text}");
        assert_eq!(list(text), list(expanded), "{text}");
    }
}

#[test]
fn prints_what_libhostlist_prints() {
    for (text, printed, length) in [
        ("foo-1a-2,foo-1a-3", "foo-1a-[2-3]", 2),
        ("foo1,foo2,foo3,fooi", "foo[1-3],fooi", 4),
        ("foo1,fooi,foo2,foo3", "foo1,fooi,foo[2-3]", 4),
        ("fooi,foo1,foo2,foo3,foo5,foo7,foo8", "fooi,foo[1-3,5,7-8]", 7),
        ("1,2,3,4,5,9", "[1-5,9]", 6),
        (",1,2,3,4,5,9,", "[1-5,9]", 6),
        ("foo[1,3]-bar", "foo1-bar,foo3-bar", 2),
        ("14636", "14636", 1),
        ("foo12,foo[4,1-2],bar[26-30]", "foo[12,4,1-2],bar[26-30]", 9),
        ("mcr[336-359,488,553-554]", "mcr[336-359,488,553-554]", 27),
        ("foo[1,1,2,1]", "foo[1,1-2,1]", 4),
        ("foo1 foo2\tfoo3", "foo[1-3]", 3),
        ("fs-1,fs-3", "fs-[1,3]", 2),
        ("foo[00-02]", "foo[00-02]", 3),
        ("foo08,foo09,foo10", "foo[08-10]", 3),
        ("foo[8-11]", "foo[8-11]", 4),
    ] {
        assert_eq!(list(text).to_string(), printed, "{text}");
        assert_eq!(list(text).len(), length, "{text}");
        assert_eq!(list(printed), list(text), "{text}");
    }
}

#[test]
fn padding_is_printed_so_that_every_parser_agrees() {
    for (text, printed) in [
        // libhostlist would read `[005,4]` as 005 and 4.
        ("n[005,4,11-13]", "n[005,004,011-013]"),
        // Numbers with different padding get separate brackets.
        ("n[1,02,3]", "n1,n02,n3"),
        ("n[9-10,011]", "n[9-10],n011"),
        ("n[098-099],n100,n5", "n[098-100],n5"),
        ("n1,n100,n02", "n[1,100],n02"),
        ("n08,n100,n5", "n[08,100],n5"),
    ] {
        assert_eq!(list(text).to_string(), printed, "{text}");
    }
}

#[test]
fn the_last_of_several_brackets_varies_fastest() {
    for (text, printed, expanded) in [
        (
            "rack[0-1]node[0-2]",
            "rack0node[0-2],rack1node[0-2]",
            "rack0node0,rack0node1,rack0node2,rack1node0,rack1node1,rack1node2",
        ),
        ("r[1,0]n[08-09]-ib", "r1n[08-09]-ib,r0n[08-09]-ib", "r1n08-ib,r1n09-ib,r0n08-ib,r0n09-ib"),
        ("a[0-1][0]", "a[00,10]", "a00,a10"),
        ("a[0][0-1]", "a0[0-1]", "a00,a01"),
        ("[0-1]x[0]y[2-3]", "0x0y[2-3],1x0y[2-3]", "0x0y2,0x0y3,1x0y2,1x0y3"),
    ] {
        assert_eq!(list(text).to_string(), printed, "{text}");
        assert_eq!(hosts(text).join(","), expanded, "{text}");
    }
}

#[test]
fn parses_the_lists_of_existing_clusters() {
    let burst = list("flux-sample-[0-3],gffw-compute-a-[001-003]");
    assert_eq!(burst.len(), 7);
    assert_eq!(burst.nth(4).as_deref(), Some("gffw-compute-a-001"));
    assert_eq!(burst.to_string(), "flux-sample-[0-3],gffw-compute-a-[001-003]");
    // The Go operator uses brackets even for one host; Flux prints it without.
    assert_eq!(list("flux-sample-[0]").to_string(), "flux-sample-0");
    // An address is treated like any host: its last number is the number.
    assert_eq!(list("10.0.0.9,fs-[1-2]").to_string(), "10.0.0.9,fs-[1-2]");
}

#[test]
fn finds_the_rank_of_a_host() {
    for (text, host, rank) in [
        ("tst0", "tst", None),
        ("tst0,tst", "tst", Some(1)),
        ("tst", "tst0", None),
        ("foo[1-5]-eth0", "foo3-eth0", Some(2)),
        ("foo[1-5]", "foo3-eth0", None),
        ("[0-5]", "3", Some(3)),
        ("[0-5]i", "0", None),
        ("i[0-5]", "i00", None),
        ("i[00-05]", "i04", Some(4)),
        ("f00[7-8]", "f007", Some(0)),
        ("f00[7-8,10]", "f0010", Some(2)),
        ("f0010001[07-08]", "f001000108", Some(1)),
        ("corn1-p2", "corn2", None),
        ("a,b,a,b", "b", Some(1)),
        ("a[0-9]", "", None),
    ] {
        assert_eq!(list(text).find(host), rank, "{text} {host}");
    }
}

#[test]
fn every_host_is_found_at_its_index() {
    let hosts = list("fs-[0-3,9-11],x[08-12]-eth0,login");
    for (rank, host) in hosts.iter().enumerate() {
        assert_eq!(hosts.find(&host), Some(rank));
        assert_eq!(hosts.nth(rank), Some(host));
    }
    assert_eq!(hosts.nth(hosts.len()), None);
}

#[test]
fn hosts_are_added_at_the_end() {
    let mut hosts = HostList::new();
    hosts.push_numbered("fs-", 0..3).unwrap();
    hosts.push_numbered("none-", 0..0).unwrap();
    hosts.push("fs-3").unwrap();
    hosts.append(&list("fs-[4-5],lead")).unwrap();
    assert_eq!(hosts.to_string(), "fs-[0-5],lead");

    for (name, error) in [
        ("", HostListError::EmptyName),
        ("a,b", HostListError::Character { position: 1 }),
        ("a[0]", HostListError::Character { position: 1 }),
        ("a b", HostListError::Character { position: 1 }),
    ] {
        assert_eq!(hosts.push(name), Err(error), "{name}");
    }
    assert_eq!(hosts.to_string(), "fs-[0-5],lead");
}

#[test]
fn a_full_list_rejects_hosts_and_stays_unchanged() {
    let mut hosts = list("a[0-1048575]");
    assert_eq!(hosts.push("a1048576"), Err(HostListError::TooManyHosts));
    assert_eq!(hosts.append(&list("b")), Err(HostListError::TooManyHosts));
    assert_eq!(hosts.to_string(), "a[0-1048575]");
    assert_eq!(hosts.len(), hosts.iter().count());
}
