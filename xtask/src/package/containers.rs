//! Checks of the Containerfile and of `compose.yml` that do not need to build an image.
//!
//! The keys and values must exist in the two formats, no secret may be in plain text, and no port
//! may be published to the network. The health probes run against a port on which nothing listens.

use std::{
    fs,
    path::Path,
    process::{Command, ExitStatus},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::asked;
use crate::{packages, port::free_port};

const CONTAINERFILE: &str = "packaging/Containerfile";
const COMPOSE: &str = "packaging/compose.yml";
const EXAMPLE: &str = "packaging/.env.example";
/// The settings that the containers of `compose.yml` read.
const SETTINGS: [&str; 2] = ["packaging/hapax.toml", "packaging/gateway.toml"];
const URL: &str = "postgres://db/a";
/// The exit status of `hapax send` if no response was received.
const NO_ANSWER: i32 = 16;
/// The keys of a service that the file uses, spelled correctly.
const SERVICE: &[&str] = &[
    "build",
    "cap_drop",
    "command",
    "depends_on",
    "environment",
    "healthcheck",
    "image",
    "ports",
    "profiles",
    "read_only",
    "restart",
    "security_opt",
    "stop_grace_period",
    "tmpfs",
    "volumes",
];
const CONDITIONS: [&str; 3] = [
    "service_started",
    "service_healthy",
    "service_completed_successfully",
];

/// Checks both files.
pub(super) fn check(project: &Path, binary: &Path) -> anyhow::Result<()> {
    let read = |file: &str| fs::read_to_string(project.join(file)).with_context(|| file.to_owned());
    let containerfile = read(CONTAINERFILE)?;
    let cargo = read("Cargo.toml")?;
    let mut findings = images(&containerfile, &cargo);
    let yaml = packages::yaml(&project.join(COMPOSE))?;
    findings.extend(composition(&yaml, &containerfile, &read(EXAMPLE)?));
    ensure!(findings.is_empty(), "{}", findings.join("; "));
    for settings in SETTINGS {
        let mut check = Command::new(binary);
        check.args(["config", "check", "--database", URL, "--config"]);
        check.arg(project.join(settings)).env_clear();
        asked(&mut check).with_context(|| settings.to_owned())?;
    }
    for probe in probes(&containerfile)? {
        let status = ask(&probe, binary)?;
        ensure!(
            status.code() == Some(NO_ANSWER),
            "the probe {probe:?} ended with {status}"
        );
    }
    Ok(())
}

/// The findings in the Containerfile.
fn images(text: &str, cargo: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let stages = stages(text);
    for (image, _) in stages
        .iter()
        .filter(|(image, _)| !stages.iter().any(|it| it.1 == *image))
    {
        let is_exact = image
            .rsplit_once(':')
            .is_some_and(|(_, tag)| tag != "latest");
        if !is_exact {
            findings.push(format!("{CONTAINERFILE}: `{image}` has no version"));
        }
    }
    let user = text
        .lines()
        .filter_map(|line| line.strip_prefix("USER "))
        .next_back();
    let is_number = |user: &str| {
        user.split(':')
            .all(|it| it.parse::<u32>().is_ok_and(|id| id > 0))
    };
    if !user.is_some_and(is_number) {
        findings.push(format!(
            "{CONTAINERFILE}: USER must be a number other than root's"
        ));
    }
    let rust = cargo
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let rust = rust.unwrap_or_default().trim_matches('"');
    if !text.contains(&format!("/rust:{rust}-")) {
        findings.push(format!("{CONTAINERFILE}: does not build with Rust {rust}"));
    }
    findings
}

/// The stages: the base image and the name of each.
fn stages(text: &str) -> Vec<(&str, &str)> {
    let stages = text.lines().filter_map(|line| line.strip_prefix("FROM "));
    stages.filter_map(|line| line.split_once(" AS ")).collect()
}

/// The findings in `compose.yml`.
fn composition(yaml: &Value, containerfile: &str, example: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let empty = serde_json::Map::new();
    let services = yaml["services"].as_object().unwrap_or(&empty);
    if services.is_empty() {
        findings.push("has no services".to_owned());
    }
    for (name, service) in services {
        let mut found = |problem: String| findings.push(format!("{name}: {problem}"));
        for key in service.as_object().unwrap_or(&empty).keys() {
            if !SERVICE.contains(&key.as_str()) {
                found(format!("`{key}` is unknown"));
            }
        }
        for (other, how) in service["depends_on"].as_object().unwrap_or(&empty) {
            let condition = how["condition"].as_str().unwrap_or_default();
            if !services.contains_key(other) || !CONDITIONS.contains(&condition) {
                found(format!("depends on `{other}` with `{condition}`"));
            }
        }
        if let Some(stage) = service["build"]["target"].as_str()
            && !stages(containerfile)
                .iter()
                .any(|(_, known)| *known == stage)
        {
            found(format!("`{stage}` is not a stage of {CONTAINERFILE}"));
        }
        for (variable, value) in service["environment"].as_object().unwrap_or(&empty) {
            let secret = ["PASSWORD", "DATABASE", "SECRET", "TOKEN", "URL"];
            let secret = secret.iter().any(|word| variable.contains(word));
            let value = value.as_str().unwrap_or_default();
            // Names are not secret.
            let is_named = variable.ends_with("_DB") || variable.ends_with("_USER");
            if secret && !is_named && !value.contains(":?") {
                found(format!("{variable} is in plain text"));
            }
        }
        for port in texts(&service["ports"]).filter(|port| !port.starts_with("127.0.0.1:")) {
            found(format!("publishes {port} to the network"));
        }
        let is_gateway = service["command"][0] == "gateway";
        if is_gateway && !texts(&service["tmpfs"]).any(|it| it == "/tmp") {
            found("has no writable /tmp for long bodies".to_owned());
        }
        let named = |volume: &&str| !volume.starts_with(['.', '/']);
        for volume in texts(&service["volumes"]).filter(named) {
            let volume = volume.split(':').next().unwrap_or_default();
            if yaml["volumes"].get(volume).is_none() {
                found(format!("the volume `{volume}` is not declared"));
            }
        }
    }
    for variable in variables(&yaml.to_string()) {
        if !example
            .lines()
            .any(|line| line.starts_with(&format!("{variable}=")))
        {
            findings.push(format!("{EXAMPLE} has no {variable}"));
        }
    }
    findings
        .into_iter()
        .map(|it| format!("{COMPOSE}: {it}"))
        .collect()
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// The names in `${NAME...}`.
fn variables(text: &str) -> Vec<&str> {
    let after = text.split("${").skip(1);
    after
        .filter_map(|rest| rest.split([':', '}', '-', '?']).next())
        .collect()
}

/// The probes of the images, as argument lists.
fn probes(text: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let commands = text.lines().zip(text.lines().skip(1));
    let commands = commands.filter(|(line, _)| line.starts_with("HEALTHCHECK "));
    let lists = commands.filter_map(|(_, next)| next.trim_start().strip_prefix("CMD "));
    lists
        .map(|list| serde_json::from_str(list).context("a probe is not a list"))
        .collect()
}

/// Runs a probe with the built binary, against a port on which nothing listens.
fn ask(probe: &[String], binary: &Path) -> anyhow::Result<ExitStatus> {
    let free = free_port();
    let words = probe.iter().map(|word| match word.as_str() {
        "/usr/bin/hapax" => binary.to_string_lossy().into_owned(),
        url if url.starts_with("http://127.0.0.1:") => format!("http://127.0.0.1:{free}/readyz"),
        word => word.to_owned(),
    });
    let words: Vec<_> = words.collect();
    let (program, arguments) = words.split_first().context("a probe is empty")?;
    let output = Command::new(program).args(arguments).env_clear().output();
    Ok(output
        .with_context(|| format!("cannot run {probe:?}"))?
        .status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "FROM docker.io/rust:1.95-slim AS build\nFROM docker.io/debian:12 AS hapax\n\
        USER 65532:65532\nHEALTHCHECK --interval=10s \\\n    CMD [\"/usr/bin/hapax\", \"send\"]\n";
    const CARGO: &str = "rust-version = \"1.95\"\n";

    #[test]
    fn an_image_without_a_version_a_root_user_and_another_rust_are_found() {
        assert_eq!(images(FILE, CARGO), Vec::<String>::new());
        let root = FILE.replace("USER 65532:65532", "USER 0:0");
        assert_eq!(images(&root, CARGO).len(), 1);
        assert_eq!(images(&FILE.replace("debian:12", "debian"), CARGO).len(), 1);
        assert_eq!(images(&FILE.replace("1.95", "1.90"), CARGO).len(), 1);
        assert_eq!(probes(FILE).unwrap(), [["/usr/bin/hapax", "send"]]);
    }

    #[test]
    fn what_is_misspelt_open_or_in_the_clear_is_found() {
        let good = json!({"services": {
            "db": {"image": "postgres:17", "volumes": ["db:/var"]},
            "relay": {"image": "hapax", "build": {"target": "hapax"}, "ports": ["127.0.0.1:1:1"],
                "depends_on": {"db": {"condition": "service_healthy"}},
                "environment": {"HAPAX__DATABASE__URL": "postgres://a:${PASSWORD:?x}@db/a"}},
        }, "volumes": {"db": null}});
        let example = "PASSWORD=x\n";
        let check = |path: &str, value: Value, expected: &str| {
            let mut bad = good.clone();
            *bad.pointer_mut(path).unwrap() = value;
            let found = composition(&bad, FILE, example);
            assert!(
                found.iter().any(|it| it.contains(expected)),
                "{expected}: {found:?}"
            );
        };
        assert_eq!(composition(&good, FILE, example), Vec::<String>::new());
        check("/services/db", json!({"imag": "x"}), "`imag` is unknown");
        check(
            "/services/relay/depends_on/db/condition",
            json!("healthy"),
            "with `healthy`",
        );
        check(
            "/services/relay/build/target",
            json!("relay"),
            "not a stage",
        );
        check(
            "/services/relay/ports/0",
            json!("9464:9464"),
            "to the network",
        );
        check("/volumes", json!({}), "not declared");
        let clear = json!({"HAPAX__DATABASE__URL": "postgres://a:secret@db/a"});
        check("/services/relay/environment", clear, "in plain text");
        let gateway = json!({"image": "hapax", "command": ["gateway"]});
        check("/services/relay", gateway, "no writable /tmp");
        let unknown = json!({"A": "${OTHER:?x}"});
        check("/services/relay/environment", unknown, "has no OTHER");
    }
}
