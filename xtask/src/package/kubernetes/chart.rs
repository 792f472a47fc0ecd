//! Checks of the Helm chart: it is rendered with several values, and the objects must pass the checks
//! of the manifests.
//!
//! Helm is used as a Python package, because this needs no cluster and no separate program.

use std::{fs, process::Command};

use anyhow::ensure;
use serde_json::{Value, json};

use super::{
    super::{Plan, asked},
    Checks,
};
use crate::packages;

const CHART: &str = "packaging/helm/hapax";
const RENDER: &str = include_str!("chart.py");

/// Checks the chart.
pub(super) fn check(plan: &Plan, checks: &Checks<'_>) -> anyhow::Result<()> {
    let packages = packages::helm(&plan.project)?;
    let folder = plan.folder.join("chart");
    fs::create_dir_all(&folder)?;
    let rendered = rendered();
    let mut python = Command::new("python3");
    python.args(["-c", RENDER]).env("PYTHONPATH", packages);
    python.arg(plan.project.join(CHART)).arg(&folder);
    python.args([json!(rendered).to_string(), json!(refused()).to_string()]);
    asked(&mut python)?;
    let mut counts = Vec::new();
    for number in 0..rendered.len() {
        counts.push(checks.of(&[folder.join(format!("{number}.yaml"))])?);
    }
    ensure!(
        counts[0] < counts[1] && counts[2] < counts[0],
        "{CHART}: values switch nothing on or off: {counts:?} objects"
    );
    Ok(())
}

/// Values with which the chart is rendered: the defaults, all that can be switched on, and without the
/// grants.
fn rendered() -> [Value; 3] {
    let settings = "[destinations.billing]\nsink.webhook = { url = \"https://example.com\", \
        secret = { file = \"/etc/hapax/secrets/billing/secret\" } }\n";
    let all = json!({
        "replicas": 3,
        "settings": settings,
        "secrets": [{"name": "billing", "secret": "hapax-billing"}],
        "imagePullSecrets": [{"name": "registry"}],
        "podAnnotations": {"example.com/team": "shop"},
        "podLabels": {"example.com/team": "shop"},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 30}],
        "affinity": {"nodeAffinity": {}},
        "gateway": {"enabled": true, "secrets": [{"name": "tls", "secret": "gateway-tls"}]},
        "networkPolicy": {"enabled": true, "egress": [{"ports": [{"port": 443}]}],
            "upstreams": [{"ports": [{"port": 80}]}]},
    });
    [json!({}), all, json!({"migrate": {"role": ""}})]
}

/// Values that the chart must refuse.
fn refused() -> [Value; 6] {
    [
        json!({"replica": 2}),
        json!({"replicas": 0}),
        json!({"terminationGracePeriodSeconds": 10}),
        json!({"migrate": {"role": "a; DROP TABLE b"}}),
        json!({"gateway": {"enabled": true, "replicas": 0}}),
        json!({"gateway": {"terminationGracePeriodSeconds": 30}}),
    ]
}
