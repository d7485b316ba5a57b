//! Tests of [`ResourceSet`]: the example of RFC 20, output of Flux, and invalid input.

use serde_json::json;

use super::*;

/// RFC 20, "Example R".
fn example() -> Value {
    json!({
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "19-22", "children": {"core": "0-47", "gpu": "0-7"}}],
            "nodelist": ["node[186-189]"],
            "nslots": 32,
            "starttime": 1_676_560_542,
            "expiration": 1_676_562_342,
        }
    })
}

fn read(value: &Value) -> Result<ResourceSet, String> {
    ResourceSet::parse(&value.to_string()).map_err(|error| error.source.to_string())
}

fn hosts(text: &str) -> HostList {
    text.parse().unwrap()
}

#[test]
fn parses_the_example_of_rfc_20() {
    let resources = read(&example()).unwrap();
    assert_eq!(resources.ranks().to_string(), "19-22");
    assert_eq!(resources.hosts().to_string(), "node[186-189]");
    assert_eq!(resources.host(20).as_deref(), Some("node187"));
    assert_eq!(resources.host(0), None);
    assert_eq!((resources.core_count(), resources.gpu_count()), (192, 32));
    assert_eq!(resources.slot_count(), Some(32));
    assert_eq!(resources.expiration(), Some(1_676_562_342.0));
    assert_eq!(ResourceSet::parse(&resources.to_string()).unwrap(), resources);
}

#[test]
fn prints_what_flux_r_encode_prints() {
    let cores = NonZeroU32::new(2).unwrap();
    let resources = ResourceSet::new(&hosts("fs-[0-3]"), cores, 0).unwrap();
    let flux = r#"{"version": 1, "execution": {"R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}], "starttime": 0.0, "expiration": 0.0, "nodelist": ["fs-[0-3]"]}}"#;
    assert_eq!(resources.to_string(), flux.replace(' ', ""));
    assert_eq!(ResourceSet::parse(flux).unwrap(), resources);
}

#[test]
fn parses_the_r_of_a_job() {
    let resources = ResourceSet::parse(
        r#"{"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0-1"}}], "starttime": 1794718020.9469755, "expiration": 0.0, "nslots": 1, "nodelist": ["fs-0"]}}"#,
    )
    .unwrap();
    assert_eq!(resources.host(0).as_deref(), Some("fs-0"));
    assert_eq!(resources.expiration(), None);
    assert!(resources.to_string().contains("1794718020.9469755"));
}

#[test]
fn ranks_may_be_spread_over_entries_and_hosts_over_lists() {
    let resources = read(&json!({
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": "2", "children": {"core": "0-3", "gpu": "0"}},
                {"rank": "0-1", "children": {"core": "0-1"}},
                {"rank": "0", "children": {"core": "2"}},
            ],
            "nodelist": ["lead", "fs-[1-2]"],
        }
    }))
    .unwrap();
    assert_eq!(resources.ranks().to_string(), "0-2");
    assert_eq!(resources.host(2).as_deref(), Some("fs-2"));
    assert_eq!((resources.core_count(), resources.gpu_count()), (9, 1));
    let sizes = [0, 1, 2, 3].map(|rank| resources.size_of(rank));
    assert_eq!(sizes, [Some((3, 0)), Some((2, 0)), Some((4, 1)), None]);
}

#[test]
fn unknown_keys_are_kept() {
    let mut value = example();
    value["scheduling"] = json!({"writer": "fluxion:jgf", "graph": {"nodes": [1, 2]}});
    value["execution"]["later"] = json!([1]);
    value["execution"]["R_lite"][0]["children"]["memory"] = json!("0");
    let resources = read(&value).unwrap();
    let printed: Value = serde_json::from_str(&resources.to_string()).unwrap();
    assert_eq!(printed["scheduling"], value["scheduling"]);
    assert_eq!(printed["execution"]["later"], json!([1]));
    assert_eq!(printed["execution"]["R_lite"][0]["children"]["memory"], json!("0"));
}

#[test]
fn properties_are_kept_and_checked() {
    let resources = read(&example()).unwrap();
    let resources = resources.with_property("amd-mi50@gpu", "19,21".parse().unwrap()).unwrap();
    let read = ResourceSet::parse(&resources.to_string()).unwrap();
    assert_eq!(read.properties()["amd-mi50@gpu"].to_string(), "19,21");

    let error = resources.clone().with_property("batch", "18-20".parse().unwrap()).unwrap_err();
    let ranks = "18".parse().unwrap();
    assert_eq!(error, ResourceSetError::PropertyRanks { name: "batch".to_owned(), ranks });
    for name in ["", "a|b", "!a", "a\"b"] {
        let error = resources.clone().with_property(name, IdSet::new()).unwrap_err();
        assert_eq!(error, ResourceSetError::PropertyName { name: name.to_owned() });
    }
}

#[test]
fn invalid_resource_sets_are_rejected() {
    let no_hosts = ResourceSet::new(&HostList::new(), NonZeroU32::MIN, 0);
    assert_eq!(no_hosts, Err(ResourceSetError::Empty));

    for (pointer, bad, message) in [
        ("/version", json!(2), "R has version 2, only version 1 is supported"),
        ("/execution/R_lite", json!([]), "R has no ranks"),
        ("/execution/nodelist/0", json!("node[186-188]"), "R has 4 ranks but 3 hosts"),
        ("/execution/nodelist", json!([]), "R has 4 ranks but 0 hosts"),
        ("/execution/nslots", json!(0), "R has 0 slots"),
        ("/execution/expiration", json!(1_676_560_542), "R has an invalid starttime"),
        ("/execution/starttime", json!(-1), "R has an invalid starttime"),
        ("/execution/R_lite/0/rank", json!("0-4294967295"), "R has 4294967296 ranks but 4 hosts"),
        ("/execution/R_lite/0/rank", json!("2,1"), "idset element 1 is out of order"),
        ("/execution/nodelist/0", json!("node["), "host list has an unmatched bracket"),
        ("/execution/nodelist", json!(["a[0-1048575]", "b"]), "R has an invalid node list"),
    ] {
        let mut value = example();
        *value.pointer_mut(pointer).unwrap() = bad;
        let error = read(&value).unwrap_err();
        assert!(error.contains(message), "{pointer}: {error}");
    }
    for text in ["", "null", "[]", "{}", r#"{"version": 1}"#] {
        assert!(ResourceSet::parse(text).is_err(), "{text}");
    }
}
