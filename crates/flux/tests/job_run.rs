//! Properties of all jobs that run in another instance: what was parsed is printed exactly, and no
//! jobspec makes the parser panic.

use std::num::NonZeroU32;

use flux_operator_flux::{JobRun, ResourceRequest, TaskCount};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Texts that a shell, a template or an option parser would change.
fn hard_text() -> impl Strategy<Value = String> {
    let hard = [
        "",
        " ",
        "\n",
        "\t",
        "'",
        "\"",
        "\\",
        "\\n",
        "`",
        "$",
        "$$",
        "${HOME}",
        "$(id)",
        "#",
        "*",
        "~",
        "-",
        "--",
        "-n4",
        "--env=A=b",
        "=",
        ";",
        "|",
        "&&",
        "{{",
        "}}",
        "{{id}}",
        "{0}",
        "%s",
        "\u{1}",
        "\u{7f}",
        "é",
        "ƒ",
        "日本",
        "🦀",
        "\u{202e}",
        "\u{feff}",
        "a b",
        "x",
    ];
    let pieces = vec(prop::sample::select(hard.to_vec()), 0..5).prop_map(|pieces| pieces.concat());
    prop_oneof![pieces, any::<String>()]
}

/// The largest counts are those of a C `int`.
fn count() -> impl Strategy<Value = NonZeroU32> {
    let counts = prop_oneof![1..9_u32, 1..=i32::MAX as u32];
    counts.prop_map(|count| NonZeroU32::new(count).expect("at least 1"))
}

fn resources() -> impl Strategy<Value = ResourceRequest> {
    (option::of((count(), any::<bool>())), count(), count(), 0..=i32::MAX as u32).prop_map(
        |(nodes, slots, cores, gpus)| ResourceRequest {
            nodes: nodes.map(|(nodes, _)| nodes),
            is_exclusive: nodes.is_some_and(|(_, is_exclusive)| is_exclusive),
            slots,
            cores,
            gpus,
        },
    )
}

/// Any JSON, also with numbers that are no counts.
fn any_json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        hard_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let object = btree_map(hard_text(), inner.clone(), 0..4);
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            object.prop_map(|object| Value::Object(object.into_iter().collect())),
        ]
    })
}

fn job_run() -> impl Strategy<Value = JobRun> {
    let attribute = prop_oneof![Just("job"), Just("files"), Just("site.attribute")];
    (
        (vec(hard_text(), 1..6), option::of(hard_text())),
        btree_map(hard_text(), hard_text(), 0..5),
        resources(),
        option::of(count()),
        prop_oneof![Just(0.0), 0.0..f64::MAX],
        btree_map(attribute.prop_map(str::to_owned), any_json(), 0..3),
        btree_map(hard_text(), any_json(), 0..3),
        option::of(btree_map(hard_text(), any_json(), 0..3)),
    )
        .prop_map(
            |(program, environment, resources, total, duration, other, user, options)| {
                let mut attributes = other;
                if let Some(options) = options {
                    attributes.insert("shell".to_owned(), json!({ "options": options }));
                }
                JobRun {
                    argv: program.0,
                    cwd: program.1,
                    environment: environment.into_iter().collect(),
                    resources,
                    tasks: total.map_or(TaskCount::PerSlot, TaskCount::Total),
                    duration,
                    attributes,
                    user_attributes: user.into_iter().collect(),
                }
            },
        )
}

/// Replaces the value at a position, counted depth first. False if there are fewer values.
fn replace(value: &mut Value, position: &mut usize, with: &Value) -> bool {
    if *position == 0 {
        *value = with.clone();
        return true;
    }
    *position -= 1;
    match value {
        Value::Array(list) => list.iter_mut().any(|child| replace(child, position, with)),
        Value::Object(object) => object.values_mut().any(|child| replace(child, position, with)),
        _ => false,
    }
}

proptest! {
    #[test]
    fn what_was_printed_is_parsed(run in job_run()) {
        prop_assert_eq!(JobRun::parse(&run.to_jobspec()).unwrap(), run);
    }

    #[test]
    fn the_command_is_in_the_jobspec_as_it_was_given(
        argv in vec(hard_text(), 1..6),
        environment in btree_map("[A-Z]{1,3}[_=]?", hard_text(), 0..5),
        cwd in hard_text(),
    ) {
        let jobspec = json!({
            "version": 1,
            "resources": [{"type": "slot", "count": 1, "label": "a", "with":
                [{"type": "core", "count": 1}]}],
            "tasks": [{"command": argv, "slot": "a", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 0.5, "cwd": cwd, "environment": environment}},
        });
        let run = JobRun::parse(&jobspec.to_string()).unwrap();
        let printed: Value = serde_json::from_str(&run.to_jobspec()).unwrap();
        prop_assert_eq!(&printed["tasks"][0]["command"], &json!(argv));
        prop_assert_eq!(&printed["attributes"], &jobspec["attributes"]);
    }

    #[test]
    fn no_jobspec_makes_the_parser_panic(
        run in job_run(), mut position in 0..40_usize, with in any_json(), text in any::<String>(),
    ) {
        let mut jobspec: Value = serde_json::from_str(&run.to_jobspec()).unwrap();
        replace(&mut jobspec, &mut position, &with);
        if let Ok(run) = JobRun::parse(&jobspec.to_string()) {
            prop_assert_eq!(JobRun::parse(&run.to_jobspec()).unwrap(), run);
        }
        let _ = JobRun::parse(&text);
        let _ = JobRun::parse(&with.to_string());
    }

    #[test]
    fn errors_and_debug_never_contain_the_environment(
        run in job_run(), mut position in 0..40_usize, with in any_json(),
    ) {
        const SECRET: &str = "hunter2-correct-horse";
        let secret = [("TOKEN".to_owned(), SECRET.to_owned())];
        let run = JobRun { environment: secret.into_iter().collect(), ..run };
        let shown = format!("{run:?} {run:#?}");
        prop_assert!(!shown.contains(SECRET));
        let mut jobspec: Value = serde_json::from_str(&run.to_jobspec()).unwrap();
        replace(&mut jobspec, &mut position, &with);
        if let Err(error) = JobRun::parse(&jobspec.to_string()) {
            let shown = format!("{error} {error:?}");
            prop_assert!(!shown.contains(SECRET), "{}", shown);
        }
    }
}

#[test]
fn hostile_json_is_rejected() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let in_attributes = json!({"version": 1, "attributes": {"system": 7}}).to_string();
    let in_attributes = in_attributes.replace('7', &deep);
    for text in [deep, in_attributes, "1e999".to_owned(), String::new(), "{\"a\": 1".to_owned()] {
        let error = JobRun::parse(&text).unwrap_err();
        assert_eq!(error.to_string(), "jobspec is not JSON");
    }
    let wide = format!("[{}0]", "{},".repeat(20_000));
    let error = JobRun::parse(&wide).unwrap_err().to_string();
    assert!(error.starts_with("jobspec has more than 20000 values: submit"), "{error}");
    let long = "k".repeat(1_000_000);
    let unknown = Map::from_iter([(long, Value::Null), ("version".to_owned(), json!(1))]);
    let error = JobRun::parse(&Value::Object(unknown).to_string()).unwrap_err();
    assert!(error.to_string().len() < 300);
}
