//! Tests of `flux-operator local`. With `FLUX_ROOT`, an installed prefix, they run with a real
//! Flux; otherwise with the built-in one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod connected;
mod connected_messages;
mod home;
mod programs;
mod queue;

use proptest::prelude::*;
use serde_json::{Value, json};

use home::{TestHome, errors, output};

#[test]
fn a_command_runs_on_four_nodes_and_its_output_is_unchanged() {
    let home = TestHome::new();
    let result = home.run(
        json!({ "size": 4, "tasks": 4, "containers": [{ "command": "echo $FLUX_TASK_RANK" }] }),
    );
    // The lead's shell expands the variable, as at a prompt. Quoted, as below, the tasks expand it.
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
    let command = "sh -c 'echo $FLUX_TASK_RANK'";
    let result = home.run(json!({ "size": 4, "tasks": 4, "containers": [{ "command": command }] }));
    let mut lines: Vec<String> = output(&result).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0", "1", "2", "3"], "{}", errors(&result));
    home.wait_until_nothing_left();
}

#[test]
fn the_exit_code_is_the_commands() {
    let home = TestHome::new();
    for code in [0, 1, 7, 75, 143] {
        let command = format!("sh -c 'exit {code}'");
        let result = home.run(json!({ "containers": [{ "command": command }] }));
        assert_eq!(result.status.code(), Some(code), "{}", errors(&result));
    }
    home.wait_until_nothing_left();
}

#[test]
fn hooks_reach_a_launcher_and_post_runs_last() {
    let home = TestHome::new();
    let commands = json!({ "pre": "export WORD='two words'; cd /", "post": "echo after" });
    let container =
        json!({ "launcher": true, "command": "echo \"$WORD\" in $PWD", "commands": commands });
    let result = home.run(json!({ "logging": { "quiet": true }, "containers": [container] }));
    assert_eq!(output(&result), "two words in /\nafter\n", "{}", errors(&result));
}

#[test]
fn a_quiet_batch_prints_nothing_of_flux_and_runs_its_lines() {
    let home = TestHome::new();
    let file = home.folder.path().join("ran");
    let command = format!("touch {}", file.display());
    let container = json!({ "batch": true, "command": command });
    let result = home.run(json!({ "logging": { "quiet": true }, "containers": [container] }));
    assert_eq!(output(&result), "", "{}", errors(&result));
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
    assert!(file.exists(), "{}", errors(&result));
}

#[test]
fn arguments_arrive_byte_for_byte() {
    let home = TestHome::new();
    let nasty = [
        "",
        " ",
        "a b",
        "'",
        "\"",
        "$HOME",
        "`id`",
        "$(id)",
        "*",
        "\n",
        "tab\t",
        "ƒ漢字🦀",
        "\\",
        "--flag",
    ];
    let expected: String = nasty.iter().map(|word| format!("<{word}>")).collect();
    for launcher in [true, false] {
        let args: Vec<&str> = ["printf", "<%s>"].into_iter().chain(nasty).collect();
        let container = json!({ "launcher": launcher, "args": args });
        let result = home.run(json!({ "containers": [container] }));
        assert_eq!(output(&result), expected, "launcher {launcher}: {}", errors(&result));
        let container = json!({ "launcher": launcher, "command": "printf '<%s>'", "args": nasty });
        let result = home.run(json!({ "containers": [container] }));
        assert_eq!(output(&result), expected, "launcher {launcher}: {}", errors(&result));
    }
}

proptest! {
    // Each case is a whole cluster.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_arguments_arrive_byte_for_byte(words in any_arguments(), launcher in any::<bool>()) {
        let home = TestHome::new();
        let script = "for word; do printf '%s\\0' \"$word\"; done";
        let args: Vec<&str> = ["sh", "-c", script, "sh"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let result = home.run(json!({ "containers": [{ "launcher": launcher, "args": args }] }));
        let printed: Vec<String> = output(&result).split_terminator('\0').map(str::to_owned).collect();
        prop_assert_eq!(printed, words, "{}", errors(&result));
    }
}

/// Arguments with characters that are special in a shell, JSON or TOML. No NUL, which ends an
/// argument, no control characters, which YAML does not accept unescaped, and no braces, which Flux
/// reads as a template.
fn any_arguments() -> impl Strategy<Value = Vec<String>> {
    let word = prop_oneof![
        "[ -z|~\n\t\u{a1}-\u{2027}\u{2030}-\u{2fff}\u{1f300}-\u{1f5ff}]{0,12}",
        "[ '\"$`\\\\*?~#&|;<>()\\[\\]\n\t=%!-]{0,12}",
    ];
    proptest::collection::vec(word, 0..6)
}

#[test]
fn a_running_cluster_accepts_commands_until_it_is_stopped() {
    let home = TestHome::new();
    let manifest = home.manifest("stays", json!({ "size": 3, "interactive": true }));
    let up = home.program(&["local", "up", "-f", &manifest]).output().unwrap();
    assert!(up.status.success(), "{}", errors(&up));
    let again = home.program(&["local", "up", "-f", &manifest]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(errors(&again).contains("running already"), "{}", errors(&again));
    let listed = home.program(&["local", "ps"]).output().unwrap();
    assert!(output(&listed).contains("stays"), "{}", output(&listed));
    let run = home
        .program(&["local", "exec", "stays", "--", "flux", "run", "-N3", "echo", "here"])
        .output()
        .unwrap();
    assert_eq!(output(&run), "here\nhere\nhere\n", "{}", errors(&run));
    let code =
        home.program(&["local", "exec", "stays", "--", "sh", "-c", "exit 9"]).status().unwrap();
    assert_eq!(code.code(), Some(9));
    let logs = home.program(&["local", "logs", "stays"]).output().unwrap();
    assert!(logs.status.success(), "{}", errors(&logs));
    let down = home.program(&["local", "down", "stays"]).output().unwrap();
    assert!(down.status.success(), "{}", errors(&down));
    let twice = home.program(&["local", "down", "stays"]).output().unwrap();
    assert!(errors(&twice).contains("no local cluster"), "{}", errors(&twice));
    home.wait_until_nothing_left();
}

#[test]
fn two_clusters_with_the_same_name_run_side_by_side() {
    let home = TestHome::new();
    let manifest = home.manifest("twice", long_running());
    let mut first = home.start(&manifest);
    first.wait_for("command starts");
    let mut second = home.start(&manifest);
    second.wait_for("command starts");
    first.stop();
    second.stop();
    home.wait_until_nothing_left();
}

#[test]
fn an_interrupt_stops_everything_with_exit_code_130() {
    let home = TestHome::new();
    let manifest = home.manifest("stop", long_running());
    let mut supervisor = home.start(&manifest);
    supervisor.wait_for("command starts");
    rustix::process::kill_process(supervisor.pid(), rustix::process::Signal::INT).unwrap();
    assert_eq!(supervisor.child.wait().unwrap().code(), Some(130));
    home.wait_until_nothing_left();
}

#[test]
fn a_killed_supervisor_leaves_nothing_behind_after_the_next_command() {
    let home = TestHome::new();
    let manifest = home.manifest("killed", long_running());
    // Killed at different times; set `KILLS=100` for a longer test.
    let kills: u32 = std::env::var("KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(6);
    let mut random = 1_u64;
    for _ in 0..kills {
        let mut front = home.start(&manifest);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(std::time::Duration::from_millis((random >> 33) % 400));
        front.child.kill().unwrap();
        front.child.wait().unwrap();
    }
    // Its agents exit by themselves after a while; a command that runs before that leaves what they
    // still use to the next command.
    home.wait_until_nothing_left_with(|| {
        let next = home.program(&["local", "ps"]).output().unwrap();
        assert!(!output(&next).contains("killed"), "{}", output(&next));
    });
}

#[test]
fn unsupported_settings_are_reported_once() {
    let home = TestHome::new();
    let container = json!({ "image": "ubuntu", "command": "true", "volumes": { "data": { "path": "/data", "claimName": "data" } } });
    let result = home.run(json!({ "containers": [container] }));
    let errors = errors(&result);
    assert_eq!(errors.matches("note: image \"ubuntu\" is not used").count(), 1, "{errors}");
    assert_eq!(errors.matches("note: volume \"data\" is not mounted").count(), 1, "{errors}");
}

#[test]
fn quiet_prints_only_the_output_of_the_command() {
    let home = TestHome::new();
    let manifest =
        home.manifest("quiet", json!({ "size": 2, "containers": [{ "command": "echo here" }] }));
    let result = home.program(&["local", "run", "--quiet", "-f", &manifest]).output().unwrap();
    assert_eq!((output(&result).as_str(), errors(&result).as_str()), ("here\n", ""));
}

#[test]
fn an_invalid_manifest_is_reported_before_anything_starts() {
    let home = TestHome::new();
    let result = home.run(json!({ "size": 0 }));
    assert_eq!(result.status.code(), Some(1));
    assert!(errors(&result).contains("spec.size: is 0: must be at least 1"), "{}", errors(&result));
    let missing = home.program(&[
        "local",
        "run",
        "--flux-root",
        "/nowhere",
        "-f",
        &home.manifest("m", json!({})),
    ]);
    let result = { missing }.output().unwrap();
    assert!(errors(&result).contains("no bin/flux below /nowhere"), "{}", errors(&result));
}

#[test]
fn an_old_flux_is_rejected_before_a_broker_starts() {
    let home = TestHome::new();
    let prefix = home.folder.path().join("old");
    std::fs::create_dir_all(prefix.join("bin")).unwrap();
    let flux = home
        .file("old/bin/flux", "#!/bin/sh\necho \"$0 $*\" >>\"$0.log\"\necho commands: 0.46.1\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&flux, executable).unwrap();
    let manifest = home.manifest("old", json!({ "interactive": true }));
    for command in ["run", "up"] {
        let mut program = home.program(&["local", command, "-f", &manifest]);
        let result = program.env("FLUX_ROOT", &prefix).output().unwrap();
        assert_eq!(result.status.code(), Some(1), "{}", errors(&result));
        let refused = format!(
            "flux-operator: Flux 0.46.1 is too old: 0.51.0 (June 2023) or newer is needed; \
             update \"{flux}\", or use a newer one with --flux-root PREFIX\n"
        );
        assert_eq!(errors(&result), refused);
    }
    let calls = std::fs::read_to_string(format!("{flux}.log")).unwrap();
    assert!(calls.lines().all(|line| line.ends_with("/flux version")), "{calls}");
    home.wait_until_nothing_left();
}

#[test]
fn brokers_have_their_own_host_names_and_jobs_do_not_see_the_mechanism() {
    let home = TestHome::new();
    let command = "flux overlay status --no-pretty; env; flux run -N2 env; flux exec env";
    let container = json!({ "launcher": true, "command": command });
    let result = home.run(json!({ "size": 2, "containers": [container] }));
    let output = output(&result);
    assert!(output.contains("0 run-0: full\n"), "{output}{}", errors(&result));
    assert!(output.contains("1 run-1: full\n"), "{output}");
    assert!(!output.contains("FAKE_HOSTNAME"), "{output}");
}

#[test]
fn the_key_does_not_appear_in_output_arguments_or_logs() {
    let home = TestHome::new();
    let manifest = home
        .manifest("secret", json!({ "size": 2, "interactive": true, "flux": { "logLevel": 7 } }));
    assert!(home.program(&["local", "up", "-f", &manifest]).status().unwrap().success());
    let state = home.folder.path().join("state/flux-operator/local/secret");
    let certificate = std::fs::read_to_string(state.join("keys/curve.cert")).unwrap();
    let key = certificate.lines().find(|line| line.contains("secret-key")).unwrap();
    let key = key.split('"').nth(1).unwrap();
    let mut text = std::fs::read_to_string(state.join("boot.json")).unwrap();
    for rank in 0..2 {
        text += &std::fs::read_to_string(state.join(format!("rank-{rank}.log"))).unwrap();
    }
    for process in home.processes() {
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
            text += &String::from_utf8_lossy(&bytes);
        }
    }
    assert!(!text.contains(key), "the key was leaked");
    assert!(home.program(&["local", "down", "secret"]).status().unwrap().success());
    home.wait_until_nothing_left();
}

fn long_running() -> Value {
    json!({ "size": 2, "containers": [{ "command": "sleep 1000" }] })
}
