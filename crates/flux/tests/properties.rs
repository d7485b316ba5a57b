//! Properties of all texts and values: printing and parsing agree, nothing panics, and results stay
//! bounded.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use flux_operator_flux::broker_config::{Access, ResourceEntry, ResourceTable};
use flux_operator_flux::hostlist::{MAX_HOSTS, MAX_NAME_LENGTH};
use flux_operator_flux::{
    Bootstrap, BrokerConfig, Certificate, HostEntry, HostList, IdSet, JobId, JobResult, JobState,
    PublicKey, ResourceSet, SecretKey,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Names that are often consecutive, with and without leading zeros, and some that are not.
fn host_name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "(a|b0|)0{0,2}[0-9]{1,2}",
        1 => "[a-z]{1,3}(-eth[01])?",
        1 => "x[0-9]{16,22}",
    ]
}

/// Valid, non-empty host lists with one or several pairs of brackets.
fn host_list() -> impl Strategy<Value = String> {
    let numbers = "0{0,2}[0-4](-0{0,2}[5-9]|-1[0-9])?(,0{0,2}[0-9]{1,2}){0,3}";
    let expression = format!("(a|b0|)\\[{numbers}\\](-e|c\\[[0-2](-[3-4])?\\])?");
    let expression = proptest::string::string_regex(&expression).expect("a regular expression");
    vec(prop_oneof![3 => expression, 1 => host_name()], 1..5).prop_map(|list| list.join(","))
}

/// Texts that resemble valid input, and often are not.
fn almost_valid() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a0-2\\[\\],\\- \t]{0,24}",
        "[0-9,\\-\\[\\]]{0,24}",
        "[ƒf0x.\\-1-9A-Za-z]{0,16}",
        "(\\[0-[0-9]{1,9}\\]x?){1,30}",
    ]
}

/// Expands a printed host list like libhostlist: each element has only its own padding.
fn read_as_libhostlist(text: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let comma = rest.find(',').unwrap_or(rest.len());
        let Some(open) = rest.find('[').filter(|open| *open < comma) else {
            hosts.push(rest[..comma].to_owned());
            rest = rest.get(comma + 1..).unwrap_or_default();
            continue;
        };
        let close = rest.find(']').expect("a closing bracket");
        let end = rest[close..].find(',').map_or(rest.len(), |end| close + end);
        for element in rest[open + 1..close].split(',') {
            let (low, high) = element.split_once('-').unwrap_or((element, element));
            let width = low.len();
            let number = |text: &str| text.parse::<u64>().expect("a number");
            for number in number(low)..=number(high) {
                let (prefix, suffix) = (&rest[..open], &rest[close + 1..end]);
                hosts.push(format!("{prefix}{number:0width$}{suffix}"));
            }
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    hosts
}

fn check_host_list(list: &HostList) {
    let hosts: Vec<String> = list.iter().collect();
    let printed = list.to_string();
    let read: HostList = printed.parse().expect("what was printed");
    assert_eq!(list.len(), hosts.len());
    assert_eq!(&read, list, "{printed}");
    assert_eq!(read.to_string(), printed);
    assert_eq!(read_as_libhostlist(&printed), hosts, "{printed}");
    for (index, host) in hosts.iter().enumerate() {
        let first = hosts.iter().position(|other| other == host);
        assert_eq!(list.find(host), first);
        assert_eq!(list.nth(index).as_ref(), Some(host));
    }
}

proptest! {
    #[test]
    fn hosts_are_the_names_that_were_pushed(names in vec(host_name(), 0..40)) {
        let mut list = HostList::new();
        for name in &names {
            list.push(name).unwrap();
        }
        prop_assert_eq!(list.iter().collect::<Vec<_>>(), names);
        check_host_list(&list);
    }

    #[test]
    fn host_lists_survive_a_round_trip(text in host_list()) {
        let list: HostList = text.parse().unwrap();
        check_host_list(&list);
        let mut twice = list.clone();
        twice.append(&list).unwrap();
        check_host_list(&twice);
    }

    #[test]
    fn host_lists_of_any_text_are_bounded(text in almost_valid()) {
        if let Ok(list) = text.parse::<HostList>() {
            prop_assert!(list.len() <= MAX_HOSTS);
            prop_assert!(list.iter().take(100).all(|host| host.len() <= MAX_NAME_LENGTH));
            if list.len() < 1000 {
                check_host_list(&list);
            }
        }
    }

    #[test]
    fn idsets_behave_like_sets(left in vec(0..60_u32, 0..30), right in vec(0..60_u32, 0..30)) {
        let set = |ids: &[u32]| ids.iter().copied().collect::<BTreeSet<u32>>();
        let id_set = |ids: &[u32]| ids.iter().copied().collect::<IdSet>();
        let same = |ids: &IdSet, set: &BTreeSet<u32>| ids.iter().eq(set.iter().copied());

        let (model, ids) = (set(&left), id_set(&left));
        let (other_model, other) = (set(&right), id_set(&right));
        prop_assert!(same(&ids, &model));
        prop_assert!(same(&ids.union(&other), &(&model | &other_model)));
        prop_assert!(same(&ids.difference(&other), &(&model - &other_model)));
        prop_assert_eq!(ids.is_subset(&other), model.is_subset(&other_model));
        prop_assert_eq!(ids.len(), model.len() as u64);
        prop_assert_eq!((ids.first(), ids.last()), (model.first().copied(), model.last().copied()));

        let mut inserted = IdSet::new();
        for id in &left {
            let new = !inserted.contains(*id);
            prop_assert_eq!(inserted.insert(*id), new);
        }
        prop_assert_eq!(&inserted, &ids);
        prop_assert_eq!(ids.to_string().parse::<IdSet>().unwrap(), ids);
    }

    #[test]
    fn idsets_of_any_text_survive_a_round_trip(text in almost_valid()) {
        if let Ok(ids) = text.parse::<IdSet>() {
            prop_assert_eq!(ids.to_string().parse::<IdSet>().unwrap(), ids);
        }
    }

    #[test]
    fn job_ids_are_parsed_in_every_encoding(number: u64) {
        let id = JobId::from(number);
        for text in [
            id.to_string(),
            id.to_f58_plain(),
            id.to_dotted_hexadecimal(),
            format!("{number}"),
            format!(" {number:#x}\n"),
        ] {
            prop_assert_eq!(text.parse::<JobId>().unwrap(), id, "{}", text);
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in almost_valid()) {
        let _ = text.parse::<JobId>();
        let _ = text.parse::<JobState>();
        let _ = text.parse::<JobResult>();
        let _ = text.parse::<PublicKey>();
        let _ = SecretKey::parse(&text);
        let _ = Certificate::parse(&text);
        let _ = ResourceSet::parse(&text);
        let _ = BrokerConfig::parse(&text);
        let r = serde_json::json!({"version": 1, "execution": {
            "R_lite": [{"rank": text, "children": {"core": text, "gpu": text}}],
            "nodelist": [text], "properties": {text.clone(): text},
        }});
        if let Ok(resources) = ResourceSet::parse(&r.to_string()) {
            prop_assert_eq!(ResourceSet::parse(&resources.to_string()).unwrap(), resources);
        }
    }

    #[test]
    fn resource_sets_survive_a_round_trip(
        hosts in host_list(), cores in 1..500_u32, gpus in 0..9_u32, property in "[a-z@+]{1,8}",
    ) {
        let hosts: HostList = hosts.parse().unwrap();
        let resources = ResourceSet::new(&hosts, NonZeroU32::new(cores).unwrap(), gpus).unwrap();
        let ranks = resources.ranks().clone();
        let resources = resources.with_property(&property, ranks).unwrap();
        let read = ResourceSet::parse(&resources.to_string()).unwrap();
        prop_assert_eq!(&read, &resources);
        prop_assert_eq!(read.core_count(), hosts.len() as u64 * u64::from(cores));
        prop_assert_eq!(read.hosts(), &hosts);
    }

    #[test]
    fn broker_configs_survive_a_round_trip(
        hosts in host_list(),
        words in [any::<String>(), any::<String>(), any::<String>()],
        bind in option::of(any::<String>()),
        port in option::of(any::<u16>()),
        flag in option::of(any::<bool>()),
        key in any::<String>(),
    ) {
        let [word, property, value] = words;
        let hosts: HostList = hosts.parse().unwrap();
        let mut entry = HostEntry::new(hosts.clone());
        entry.bind = bind.clone();
        let mut access = Access { allow_guest_user: flag, ..Access::default() };
        access.other.insert(format!("x{key}"), value.clone().into());
        let mut config = BrokerConfig {
            access: Some(access),
            bootstrap: Some(Bootstrap {
                curve_cert: Some(word.clone()),
                default_port: port,
                default_bind: bind,
                hosts: vec![entry.clone(), entry],
                ..Bootstrap::default()
            }),
            resource: Some(ResourceTable {
                path: Some(word),
                config: vec![ResourceEntry {
                    hosts,
                    cores: Some(IdSet::first_n(4)),
                    gpus: None,
                    properties: vec![property],
                }],
                ..ResourceTable::default()
            }),
            ..BrokerConfig::default()
        };
        config.other.insert(format!("x{key}"), value.into());
        let printed = config.to_toml().unwrap();
        prop_assert_eq!(BrokerConfig::parse(&printed).unwrap(), config);
    }

    #[test]
    fn ranks_are_the_hosts_without_repetitions(text in host_list()) {
        let list: HostList = text.parse().unwrap();
        let entry = HostEntry::new(list.clone());
        let bootstrap = Bootstrap {
            curve_cert: Some("cert".to_owned()),
            hosts: vec![entry.clone(), entry],
            ..Bootstrap::default()
        };
        let names: Vec<String> = bootstrap.ranks().unwrap().into_iter().map(|host| host.name).collect();
        let mut seen = BTreeSet::new();
        let once: Vec<String> = list.iter().filter(|host| seen.insert(host.clone())).collect();
        prop_assert_eq!(names, once);
    }
}
