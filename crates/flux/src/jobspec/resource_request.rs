//! The `resources` of a jobspec of version 1: slots of cores and GPUs, alone or on nodes.

use std::num::NonZeroU32;

use serde_json::{Value, json};

use super::section::{JobRunError, Section, not_expected};

/// The resources that a job requests. RFC 25 allows no other forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// How many nodes; `None` if that is left to the scheduler.
    pub nodes: Option<NonZeroU32>,
    /// It gets its nodes for itself. Only with `nodes`.
    pub is_exclusive: bool,
    /// How many slots: on each node with `nodes`, else in total.
    pub slots: NonZeroU32,
    /// How many cores each slot has.
    pub cores: NonZeroU32,
    /// How many GPUs each slot has.
    pub gpus: u32,
}

impl ResourceRequest {
    /// How many slots it has in total.
    pub fn total_slots(&self) -> u64 {
        let nodes = self.nodes.map_or(1, NonZeroU32::get);
        u64::from(nodes) * u64::from(self.slots.get())
    }

    /// Parses the only entry of `resources`. Also returns the label of the slots.
    pub(super) fn parse(mut vertex: Section) -> Result<(ResourceRequest, String), JobRunError> {
        let (mut nodes, mut is_exclusive) = (None, false);
        let mut kind = vertex.string("type")?;
        if kind == "node" {
            nodes = Some(vertex.count("count")?);
            is_exclusive = vertex.boolean("exclusive")?.unwrap_or(false);
            let slot = vertex.only_section("with")?;
            finish(vertex)?;
            vertex = slot;
            kind = vertex.string("type")?;
        }
        if kind != "slot" {
            let expected = if nodes.is_some() { "slot" } else { "node or slot" };
            return Err(not_expected(&vertex.path("type"), expected));
        }
        let slots = vertex.count("count")?;
        // The schema of RFC 25 allows it. The resources of a slot are never shared.
        if vertex.boolean("exclusive")? == Some(false) {
            return Err(not_expected(&vertex.path("exclusive"), "true"));
        }
        let label = vertex.string("label")?;
        let (cores, gpus) = parse_slot(&mut vertex)?;
        finish(vertex)?;
        Ok((ResourceRequest { nodes, is_exclusive, slots, cores, gpus }, label))
    }

    /// The value of `resources`.
    pub(super) fn to_json(self, label: &str) -> Value {
        let mut with = vec![json!({"type": "core", "count": self.cores})];
        if self.gpus > 0 {
            with.push(json!({"type": "gpu", "count": self.gpus}));
        }
        let slot = json!({"type": "slot", "count": self.slots, "label": label, "with": with});
        let Some(nodes) = self.nodes else { return json!([slot]) };
        let mut node = json!({"type": "node", "count": nodes, "with": [slot]});
        if self.is_exclusive {
            node["exclusive"] = true.into();
        }
        json!([node])
    }
}

/// The cores and GPUs of each slot.
fn parse_slot(slot: &mut Section) -> Result<(NonZeroU32, u32), JobRunError> {
    let (mut cores, mut gpus) = (None, None);
    for mut vertex in slot.sections("with")? {
        match vertex.string("type")?.as_str() {
            "core" if cores.is_none() => cores = Some(vertex.count("count")?),
            "gpu" if gpus.is_none() => gpus = Some(vertex.count_or_zero("count")?),
            _ => return Err(not_expected(&slot.path("with"), "a core and at most a gpu")),
        }
        finish(vertex)?;
    }
    let cores =
        cores.ok_or_else(|| not_expected(&slot.path("with"), "a core and at most a gpu"))?;
    Ok((cores, gpus.unwrap_or(0)))
}

/// Fails if a vertex has other keys. A `unit` means nothing for resources that are counted.
fn finish(mut vertex: Section) -> Result<(), JobRunError> {
    if vertex.take("unit").is_some_and(|unit| !unit.is_string()) {
        return Err(not_expected(&vertex.path("unit"), "a string"));
    }
    vertex.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(resources: Value) -> Result<ResourceRequest, String> {
        let mut jobspec = Section::new("", json!({"resources": resources})).unwrap();
        let first = jobspec.only_section("resources").map_err(|error| error.to_string())?;
        let (request, label) = ResourceRequest::parse(first).map_err(|error| error.to_string())?;
        assert_eq!(label, "here");
        Ok(request)
    }

    fn request(nodes: u32, slots: u32, cores: u32, gpus: u32) -> ResourceRequest {
        let count = |count| NonZeroU32::new(count).unwrap();
        let (slots, cores) = (count(slots), count(cores));
        ResourceRequest { nodes: NonZeroU32::new(nodes), is_exclusive: false, slots, cores, gpus }
    }

    fn slot(count: Value, with: Value) -> Value {
        json!({"type": "slot", "count": count, "label": "here", "with": with})
    }

    fn node(with: Value) -> Value {
        json!([{"type": "node", "count": 4, "with": with}])
    }

    #[test]
    fn the_four_forms_of_version_1_are_parsed() {
        let core = json!({"type": "core", "count": 2});
        let gpu = json!({"type": "gpu", "count": 1, "unit": "device"});
        let cores = slot(json!(3), json!([core]));
        // Either may be first.
        let both = slot(json!(3), json!([gpu, core]));
        assert_eq!(parse(json!([cores])), Ok(request(0, 3, 2, 0)));
        assert_eq!(parse(json!([both])), Ok(request(0, 3, 2, 1)));
        assert_eq!(parse(node(json!([cores]))), Ok(request(4, 3, 2, 0)));
        assert_eq!(parse(node(json!([both]))), Ok(request(4, 3, 2, 1)));

        let mut nodes = node(json!([cores]));
        nodes[0]["exclusive"] = json!(true);
        let exclusive = ResourceRequest { is_exclusive: true, ..request(4, 3, 2, 0) };
        assert_eq!(parse(nodes), Ok(exclusive));
        assert_eq!((exclusive.total_slots(), request(0, 3, 2, 1).total_slots()), (12, 3));

        let no_gpus = slot(json!(1), json!([core, {"type": "gpu", "count": 0}]));
        assert_eq!(parse(json!([no_gpus])), Ok(request(0, 1, 2, 0)));
        let mut exclusive_slot = cores;
        exclusive_slot["exclusive"] = json!(true);
        assert_eq!(parse(json!([exclusive_slot])), Ok(request(0, 3, 2, 0)));
    }

    #[test]
    fn a_parsed_request_is_printed() {
        let most = i32::MAX as u32;
        for expected in [request(0, 3, 2, 1), request(4, 1, 1, 0), request(most, most, most, most)]
        {
            for is_exclusive in [false, expected.nodes.is_some()] {
                let expected = ResourceRequest { is_exclusive, ..expected };
                assert_eq!(parse(expected.to_json("here")), Ok(expected));
            }
        }
    }

    #[test]
    fn other_forms_name_the_part() {
        let core = json!({"type": "core", "count": 1});
        let good = slot(json!(1), json!([core]));
        let changed = |key: &str, value: Value| {
            let mut slot = good.clone();
            slot[key] = value;
            json!([slot])
        };
        let counted = |count: Value| json!([slot(count, json!([core]))]);
        let holding = |with: Value| json!([slot(json!(1), with)]);
        let whole = "resources[0].count of the jobspec is not a whole number";
        let with = "resources[0].with of the jobspec is not a core and at most a gpu";
        for (resources, message) in [
            (json!({}), "resources of the jobspec is not a list"),
            (json!([]), "resources of the jobspec is not a list with one entry"),
            (json!([good, good]), "resources of the jobspec is not a list with one entry"),
            (json!(["slot"]), "resources[0] of the jobspec is not an object"),
            (json!([{"count": 1}]), "jobspec has no resources[0].type"),
            (json!([core]), "resources[0].type of the jobspec is not node or slot"),
            (json!([{"type": "rack", "count": 1}]), "resources[0].type of the jobspec is not node"),
            (changed("type", json!(7)), "resources[0].type of the jobspec is not a string"),
            (counted(json!(0)), "resources[0].count of the jobspec is not at least 1"),
            (counted(json!(-1)), whole),
            (counted(json!(1.0)), whole),
            (counted(json!(2_147_483_648_u64)), whole),
            (counted(json!(1e300)), whole),
            (counted(json!("1-4")), whole),
            (counted(json!({"min": 1, "max": 4})), whole),
            (changed("label", json!(null)), "resources[0].label of the jobspec is not a string"),
            (changed("unit", json!(1)), "resources[0].unit of the jobspec is not a string"),
            (
                changed("exclusive", json!(false)),
                "resources[0].exclusive of the jobspec is not true",
            ),
            (changed("id", json!("x")), "jobspec has resources[0].id, which is not part"),
            (changed("with", json!(2)), "resources[0].with of the jobspec is not a list"),
            (holding(json!([])), with),
            (holding(json!([{"type": "gpu", "count": 1}])), with),
            (holding(json!([core, core])), with),
            (holding(json!([core, {"type": "memory", "count": 1}])), with),
            (holding(json!([{"type": "node", "count": 1}])), with),
            (
                holding(json!([{"type": "core", "count": 0}])),
                "resources[0].with[0].count of the jobspec is not at least 1",
            ),
            (
                holding(json!([{"type": "core", "count": 1, "with": []}])),
                "jobspec has resources[0].with[0].with, which is not part of version 1",
            ),
            (
                node(json!([good, core])),
                "resources[0].with of the jobspec is not a list with one entry",
            ),
            (node(json!([core])), "resources[0].with[0].type of the jobspec is not slot"),
            (node(node(json!([good]))), "resources[0].with[0].type of the jobspec is not slot"),
            (json!([{"type": "node", "with": [good]}]), "jobspec has no resources[0].count"),
            (
                json!([{"type": "node", "count": 1, "with": [good], "exclusive": "yes"}]),
                "resources[0].exclusive of the jobspec is not true or false",
            ),
        ] {
            let error = parse(resources.clone()).unwrap_err();
            assert!(error.starts_with(message), "{resources}: {error}");
            assert!(error.ends_with("flux submit, flux run or flux batch"), "{error}");
        }
    }
}
