//! Checks of the Kubernetes manifests and of the Helm chart, without a cluster.
//!
//! Every object must match the schemas of the oldest and of the newest supported release, and the
//! rules of the module `rules`. The binary must accept the commands of the containers and the settings
//! of the relay and of the gateway, and the grants must be those of the guide.

mod rules;
mod chart;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{Plan, asked};
use crate::packages;

const MANIFESTS: &str = "packaging/kubernetes";
/// The oldest and the newest release whose schemas the manifests must match.
const RELEASES: &str = "1.30,1.37";
const VALIDATE: &str = include_str!("manifests.py");
/// The image whose containers run the binary.
const IMAGE: &str = "/hapax:";
const ROLES: &str = "docs/guides/postgres-roles.md";
const URL: &str = "postgres://db/a";
/// The content of the secrets that the settings name.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Checks the manifests and the chart.
pub(super) fn check(plan: &Plan) -> anyhow::Result<()> {
    let packages = packages::kubernetes(&plan.project)?;
    let roles = fs::read_to_string(plan.project.join(ROLES))?;
    let checks = Checks {
        plan,
        packages: &packages,
        roles: &roles,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(plan.project.join(MANIFESTS))? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    let count = checks.of(&files)?;
    println!("    {count} Kubernetes objects");
    chart::check(plan, &checks)
}

/// What the checks of objects need.
struct Checks<'a> {
    plan: &'a Plan,
    /// The folder of the Python packages.
    packages: &'a Path,
    /// The guide with the grants.
    roles: &'a str,
}

impl Checks<'_> {
    /// Checks the objects of these files, and returns their number.
    fn of(&self, files: &[PathBuf]) -> anyhow::Result<usize> {
        let objects = validated(files, self.packages)?;
        let findings = rules::findings(&objects);
        ensure!(findings.is_empty(), "{files:?}: {}", findings.join("; "));
        grants(&objects, self.roles)?;
        commands(&objects, self.plan)?;
        settings(&objects, self.plan)?;
        Ok(objects.len())
    }
}

/// Validates the files against the schemas, and returns their objects.
fn validated(files: &[PathBuf], packages: &Path) -> anyhow::Result<Vec<Value>> {
    let mut python = Command::new("python3");
    python.args(["-c", VALIDATE, RELEASES]).args(files);
    python.env("PYTHONPATH", packages);
    let objects = asked(&mut python)?;
    serde_json::from_str(&objects).context("the validator does not print JSON")
}

/// Requires that grants are the second block of SQL in the guide.
fn grants(objects: &[Value], roles: &str) -> anyhow::Result<()> {
    let block = roles.split("```sql\n").nth(2);
    let block = block.and_then(|rest| rest.split("```").next());
    let mut applied = objects
        .iter()
        .filter_map(|it| it["data"]["grants.sql"].as_str());
    ensure!(
        applied.all(|applied| Some(applied) == block),
        "grants.sql differs from the grants in {ROLES}"
    );
    Ok(())
}

/// Requires that the images of the binary have its version, and that it has the commands and flags of
/// their containers.
fn commands(objects: &[Value], plan: &Plan) -> anyhow::Result<()> {
    let mut count = 0;
    for container in rules::pods(objects).iter().flat_map(rules::Pod::containers) {
        let image = container["image"].as_str().unwrap_or_default();
        let Some((_, version)) = image.split_once(IMAGE) else {
            continue;
        };
        ensure!(
            version == plan.version,
            "the image {image} has not the version {}",
            plan.version
        );
        let arguments = container["args"].as_array().into_iter().flatten();
        let mut help = Command::new(&plan.binary);
        help.args(arguments.filter_map(Value::as_str));
        asked(help.arg("--help"))?;
        count += 1;
    }
    ensure!(count > 0, "no container has an image {IMAGE}");
    Ok(())
}

/// Requires that the binary accepts the settings of the relay and of the gateway, with secrets in the
/// files that the settings name. Each file must be in a volume.
fn settings(objects: &[Value], plan: &Plan) -> anyhow::Result<()> {
    let texts = objects.iter();
    let texts: Vec<_> = texts
        .filter_map(|it| it["data"]["hapax.toml"].as_str())
        .collect();
    ensure!(!texts.is_empty(), "no ConfigMap has the file hapax.toml");
    texts
        .into_iter()
        .try_for_each(|text| check_settings(text, objects, plan))
}

fn check_settings(text: &str, objects: &[Value], plan: &Plan) -> anyhow::Result<()> {
    let folder = plan.folder.join("kubernetes");
    for path in secrets(text) {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let is_mounted = rules::pods(objects)
            .iter()
            .flat_map(rules::Pod::mounts)
            .any(|it| it == parent);
        ensure!(is_mounted, "hapax.toml: {path} is in no volume");
        let file = folder.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().context("a secret has a folder")?)?;
        fs::write(file, SECRET)?;
    }
    let file = folder.join("hapax.toml");
    let here = format!("file = \"{}/", folder.display());
    fs::write(&file, text.replace("file = \"/", &here))?;
    let mut check = Command::new(&plan.binary);
    check.args(["config", "check", "--database", URL, "--config"]);
    check.arg(&file);
    asked(check.env_clear()).map(drop)
}

/// The files of the secrets in settings.
fn secrets(text: &str) -> Vec<&str> {
    let after = text.split("file = \"").skip(1);
    after.filter_map(|rest| rest.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_that_differ_from_the_guide_are_found() {
        let guide = "```sql\nCREATE ROLE a;\n```\ntext\n```sql\nGRANT a;\n```\n";
        let map = |sql: &str| [serde_json::json!({"data": {"grants.sql": sql}})];
        grants(&map("GRANT a;\n"), guide).unwrap();
        grants(&map("GRANT b;\n"), guide).unwrap_err();
        grants(&[], guide).unwrap();
    }

    #[test]
    fn the_secrets_of_settings_are_found() {
        let text = "url = { file = \"/a/url\" }\nsecret = { file = \"/b/c\" }\n";
        assert_eq!(secrets(text), ["/a/url", "/b/c"]);
    }
}
