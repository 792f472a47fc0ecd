//! Rules for Kubernetes objects that no schema contains.
//!
//! Pods must meet the restricted Pod Security Standard and have probes, requests of resources and
//! enough time to stop. A gateway can write temporary files. Secrets are not in plain text. What one
//! object names in another one exists.

use serde_json::{Value, json};

/// The seconds that a command needs to stop: as many as its systemd unit has.
const STOP_SECONDS: [(&str, u64); 2] = [("relay", 35), ("gateway", 60)];
/// Parts of the names of variables that may be secret.
const SECRET: [&str; 5] = ["PASSWORD", "SECRET", "TOKEN", "URL", "KEY"];
/// The folder of temporary files, in which a gateway keeps parts of long bodies.
const TEMPORARY: &str = "/tmp";

/// A template of pods.
pub(super) struct Pod<'a> {
    name: &'a str,
    kind: &'a str,
    labels: &'a Value,
    spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// Its containers, including those that run first.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        list(&self.spec["initContainers"]).chain(list(&self.spec["containers"]))
    }

    /// The paths at which its volumes are mounted.
    pub(super) fn mounts(&self) -> Vec<&'a str> {
        let mounts = self.containers().flat_map(|it| list(&it["volumeMounts"]));
        mounts.filter_map(|it| it["mountPath"].as_str()).collect()
    }
}

/// The templates of pods in these objects.
pub(super) fn pods(objects: &[Value]) -> Vec<Pod<'_>> {
    objects.iter().filter_map(template).collect()
}

fn template(object: &Value) -> Option<Pod<'_>> {
    let template = object.pointer("/spec/template")?;
    Some(Pod {
        name: object["metadata"]["name"].as_str()?,
        kind: object["kind"].as_str()?,
        labels: &template["metadata"]["labels"],
        spec: &template["spec"],
    })
}

/// The findings in these objects.
pub(super) fn findings(objects: &[Value]) -> Vec<String> {
    let pods = pods(objects);
    let mut findings = Vec::new();
    for pod in &pods {
        let mut found = |problem: String| findings.push(format!("{}: {problem}", pod.name));
        of_the_pod(pod, &mut found);
        volumes(pod, objects, &mut found);
        for container in pod.containers() {
            of_the_container(container, &mut found);
        }
        if pod.kind == "Deployment" {
            list(&pod.spec["containers"]).for_each(|it| probes(it, &mut found));
        }
    }
    for object in objects {
        let (spec, name) = (&object["spec"], &object["metadata"]["name"]);
        let selector = match object["kind"].as_str() {
            Some("Service") => json!({"matchLabels": spec["selector"]}),
            Some("NetworkPolicy") => spec["podSelector"].clone(),
            Some("Deployment" | "PodDisruptionBudget") => spec["selector"].clone(),
            _ => continue,
        };
        if !pods.iter().any(|pod| selects(&selector, pod.labels)) {
            findings.push(format!("{name}: selects no pod"));
        }
    }
    findings
}

fn of_the_pod(pod: &Pod<'_>, found: &mut impl FnMut(String)) {
    let security = &pod.spec["securityContext"];
    let user = security["runAsUser"].as_u64().unwrap_or_default();
    if security["runAsNonRoot"] != true || user == 0 {
        found("runs as root".to_owned());
    }
    if security["seccompProfile"]["type"] != "RuntimeDefault" {
        found("has no seccomp profile".to_owned());
    }
    if pod.spec["automountServiceAccountToken"] != false {
        found("has a token of the API server".to_owned());
    }
    if pod.spec["enableServiceLinks"] != false {
        found("has the services of the namespace in its environment".to_owned());
    }
    for spread in list(&pod.spec["topologySpreadConstraints"]) {
        if !selects(&spread["labelSelector"], pod.labels) {
            found("is spread by the labels of other pods".to_owned());
        }
    }
    let given = pod.spec["terminationGracePeriodSeconds"].as_u64();
    for (command, seconds) in STOP_SECONDS {
        let runs = pod.containers().any(|it| it["args"][0] == command);
        if runs && given.is_none_or(|given| given < seconds) {
            found(format!("has less than {seconds} s to stop"));
        }
    }
}

fn of_the_container(container: &Value, found: &mut impl FnMut(String)) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    if tag.is_empty() || tag == "latest" || tag.contains('/') {
        found(format!("image `{image}` has no version"));
    }
    let security = &container["securityContext"];
    let is_restricted = security["allowPrivilegeEscalation"] == false
        && security["readOnlyRootFilesystem"] == true
        && security["capabilities"]["drop"][0] == "ALL";
    if !is_restricted {
        found(format!("{image} is not restricted"));
    }
    for path in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
        if container["resources"].pointer(path).is_none() {
            found(format!("{image} has no resources{path}"));
        }
    }
    for variable in list(&container["env"]) {
        let name = variable["name"].as_str().unwrap_or_default();
        let may_be_secret = SECRET.iter().any(|word| name.contains(word));
        if may_be_secret && !name.ends_with("__FILE") && variable.get("value").is_some() {
            found(format!("{name} is in plain text"));
        }
    }
}

fn probes(container: &Value, found: &mut impl FnMut(String)) {
    let ports: Vec<_> = list(&container["ports"]).map(|it| &it["name"]).collect();
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let get = &container[probe]["httpGet"];
        if get["path"] != path || !ports.contains(&&get["port"]) {
            found(format!(
                "{probe} does not get {path} from a port of the pod"
            ));
        }
    }
}

fn volumes(pod: &Pod<'_>, objects: &[Value], found: &mut impl FnMut(String)) {
    let declared: Vec<_> = list(&pod.spec["volumes"]).collect();
    for mount in pod.containers().flat_map(|it| list(&it["volumeMounts"])) {
        if !declared.iter().any(|it| it["name"] == mount["name"]) {
            found(format!("the volume {} is not declared", mount["name"]));
        }
    }
    let is_empty = |mount: &Value| {
        let volume = declared.iter().find(|it| it["name"] == mount["name"]);
        volume.is_some_and(|it| it.get("emptyDir").is_some())
    };
    for container in pod.containers().filter(|it| it["args"][0] == "gateway") {
        let mut mounts = list(&container["volumeMounts"]);
        if !mounts.any(|it| it["mountPath"] == TEMPORARY && is_empty(it)) {
            found(format!("has no writable {TEMPORARY} for long bodies"));
        }
    }
    for volume in declared {
        let Some(name) = volume.pointer("/configMap/name") else {
            continue;
        };
        let exists = objects
            .iter()
            .any(|it| it["kind"] == "ConfigMap" && it["metadata"]["name"] == *name);
        if !exists {
            found(format!("there is no ConfigMap {name}"));
        }
    }
}

/// Whether a label selector selects pods with these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut equal = equal.map(|(label, value)| labels.get(label) == Some(value));
    let mut one_of = list(&selector["matchExpressions"]).map(|it| {
        let value = it["key"].as_str().and_then(|key| labels.get(key));
        it["operator"] == "In" && list(&it["values"]).any(|one| Some(one) == value)
    });
    equal.all(|it| it) && one_of.all(|it| it)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<Value> {
        let labels = json!({"app": "relay"});
        let pod = json!({
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 35,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "topologySpreadConstraints": [{"labelSelector": {"matchLabels": labels}}],
            "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
            "containers": [{"image": "example.com/hapax:0.1.0", "args": ["relay"],
                "env": [{"name": "HAPAX__DATABASE__URL__FILE", "value": "/etc/url"}],
                "ports": [{"name": "metrics"}],
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}},
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}},
                "resources": {"requests": {"cpu": "1", "memory": "1"}, "limits": {"memory": "1"}},
                "volumeMounts": [{"name": "settings", "mountPath": "/etc"}],
                "securityContext": {"allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}}],
        });
        vec![
            json!({"kind": "Deployment", "metadata": {"name": "relay"}, "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod}}}),
            json!({"kind": "ConfigMap", "metadata": {"name": "settings"}}),
            json!({"kind": "Service", "metadata": {"name": "relay"}, "spec": {"selector": labels}}),
            json!({"kind": "NetworkPolicy", "metadata": {"name": "relay"}, "spec": {"podSelector":
                {"matchExpressions": [{"key": "app", "operator": "In", "values": ["relay"]}]}}}),
        ]
    }

    /// Sets the value at a path of one of the objects, and expects a finding.
    #[track_caller]
    fn check(object: usize, path: &str, value: Value, expected: &str) {
        let mut bad = good();
        let at = bad[object].pointer_mut(path);
        *at.unwrap_or_else(|| panic!("{path} is not there")) = value;
        let found = findings(&bad);
        assert!(found.iter().any(|it| it.contains(expected)), "{found:?}");
    }

    #[test]
    fn good_objects_have_no_findings() {
        assert_eq!(findings(&good()), Vec::<String>::new());
    }

    #[test]
    fn a_pod_that_may_do_too_much_is_found() {
        let spec = "/spec/template/spec";
        let of_pod = |path: &str, value: Value, expected: &str| {
            check(0, &format!("{spec}{path}"), value, expected);
        };
        of_pod("/securityContext/runAsNonRoot", json!(false), "as root");
        of_pod("/securityContext/seccompProfile", json!({}), "seccomp");
        of_pod("/automountServiceAccountToken", json!(true), "token");
        of_pod("/enableServiceLinks", json!(true), "environment");
        of_pod(
            "/terminationGracePeriodSeconds",
            json!(30),
            "less than 35 s",
        );
        // A gateway waits for its requests in flight.
        let gateway = "/containers/0/args";
        of_pod(gateway, json!(["gateway"]), "less than 60 s");
        of_pod(gateway, json!(["gateway"]), "no writable /tmp");
        let first = "/containers/0";
        let of_container = |path: &str, value: Value, expected: &str| {
            of_pod(&format!("{first}{path}"), value, expected);
        };
        of_container("/image", json!("localhost:5000/hapax"), "no version");
        of_container("/securityContext/capabilities", json!({}), "not restricted");
        of_container("/resources/limits", json!({}), "resources/limits/memory");
        let secret = json!([{"name": "DATABASE_URL", "value": "postgres://a:b@c/d"}]);
        of_container("/env", secret, "in plain text");
    }

    #[test]
    fn what_is_named_and_does_not_exist_is_found() {
        let first = "/spec/template/spec/containers/0";
        check(0, &format!("{first}/ports"), json!([]), "livenessProbe");
        let path = format!("{first}/readinessProbe/httpGet/path");
        check(0, &path, json!("/ready"), "readinessProbe");
        let path = format!("{first}/volumeMounts/0/name");
        check(0, &path, json!("other"), "\"other\" is not declared");
        check(
            1,
            "/metadata/name",
            json!("other"),
            "no ConfigMap \"settings\"",
        );
        check(
            2,
            "/spec/selector",
            json!({"app": "other"}),
            "selects no pod",
        );
        let values = "/spec/podSelector/matchExpressions/0/values";
        check(3, values, json!(["other"]), "selects no pod");
        let spread = "/spec/template/spec/topologySpreadConstraints/0/labelSelector";
        check(
            0,
            spread,
            json!({"matchLabels": {"app": "x"}}),
            "other pods",
        );
    }
}
