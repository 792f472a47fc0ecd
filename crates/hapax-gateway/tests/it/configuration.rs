//! Configuration: what is refused, and with which words.

use std::{net::SocketAddr, path::Path};

use hapax_gateway::config::Settings;
use hapax_runtime::config::{Layers, Wrong};

const SOUND: &str = r#"
[gateway.listeners.http]
listen = "127.0.0.1:8080"

[gateway.upstreams.orders]
instances = ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]

[gateway.routes.orders]
path = "/orders/{id}"
upstream = "orders"
tenant = { header = "x-tenant" }
unknown = "look_up"

[gateway.routes.orders.look_up]
path = "/by-key/{key}"
"#;

#[test]
fn a_sound_configuration_is_accepted() {
    let settings = read("").unwrap();
    assert_eq!(
        settings.routes["orders"]
            .look_up
            .as_ref()
            .unwrap()
            .not_happened,
        [404]
    );
}

#[test]
fn the_listener_for_monitoring_is_an_address_or_off() {
    let health = |value: &str| {
        let settings = parsed(&format!("[gateway]\nhealth = {value}\n"));
        settings.map(|settings| settings.health)
    };
    let address: SocketAddr = "127.0.0.1:9467".parse().unwrap();
    assert_eq!(health("\"127.0.0.1:9467\""), Ok(Some(address)));
    assert_eq!(health("\"off\""), Ok(None));
    let wrong = health("\"of\"").unwrap_err().to_string();
    assert!(wrong.contains("health must be an address"), "{wrong}");
    assert!(wrong.contains("or \"off\", not \"of\""), "{wrong}");
}

#[test]
fn the_configuration_of_the_guide_is_accepted() {
    let guide = include_str!("../../../../docs/guides/gateway.md");
    let (_, rest) = guide.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let settings = parsed(text).unwrap();
    settings.check().unwrap();
    assert_eq!(settings.routes.len(), 2);
}

#[test]
fn every_setting_of_the_reference_exists() {
    let reference = include_str!("../../../hapax-server/src/hapax.default.toml");
    let (_, section) = reference.split_once("# [gateway]\n").unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("# "));
    let lines = lines.filter(|line| line.starts_with('[') || line.contains(" = "));
    let text = lines.fold("[gateway]\n".to_owned(), |text, line| text + line + "\n");
    let settings = parsed(&text).unwrap();
    assert_eq!(settings.routes["orders"].nothing_happened.len(), 5);
}

#[test]
fn a_configuration_with_an_error_is_refused_as_a_whole() {
    check(
        "[gateway.routes.x]\npath = \"/x\"\nupstream = \"order\"",
        "gateway.routes.x.upstream names the upstream \"order\", which does not exist: did you \
         mean orders?",
    );
    check(
        "[gateway.routes.x]\npath = \"/x/{*rest}/y\"\nupstream = \"orders\"",
        "gateway.routes.x.path",
    );
    check(
        "[gateway.routes.x]\npath = \"/orders/{name}\"\nupstream = \"orders\"",
        "matches the same requests as the route \"orders\"",
    );
    check(
        "[gateway.routes.x]\npath = \"/x\"\nupstream = \"orders\"\nunknown = \"look_up\"",
        "gateway.routes.x.look_up is required",
    );
    check(
        "[gateway.routes.x]\npath = \"/x\"\nupstream = \"orders\"\nunknwon = \"forward\"",
        "unknown",
    );
    check(
        "[gateway.routes.x]\npath = \"/x\"\nupstream = \"orders\"\nprofile = \"acp\"",
        "gateway.routes.x.key must be \"required\"",
    );
    check(
        "[gateway.routes.x]\npath = \"/x\"\nupstream = \"orders\"\noperation = \"my orders\"",
        "gateway.routes.x.operation expected a name",
    );
    check(
        "[gateway.routes.x]\npath = \"/x\"\nupstream = \"orders\"\nlease = \"5s\"",
        "gateway.routes.x.lease is a setting of [gateway]",
    );
    let long = "x".repeat(250);
    check(
        &format!("[gateway.routes.x]\npath = \"/x\"\nupstream = \"orders\"\noperation = {long:?}"),
        "gateway.routes.x.operation is too long",
    );
    check(
        "[gateway.upstreams.x]\ninstances = [\"http://a\"]\ntenant_rate = { requests = 1, per = \"0s\" }",
        "gateway.upstreams.x.tenant_rate.per must be longer than 0s",
    );
    check(
        "[gateway.upstreams.x]\ninstances = [\"http://a\"]\nrate = { requests = 0 }",
        "upstreams.x.rate.requests must be a nonzero u32",
    );
    check(
        "[gateway.listeners.x]\nlisten = \"127.0.0.1:1\"\nproxy_protocol = { from = [] }",
        "gateway.listeners.x.proxy_protocol.from must name",
    );
    check(
        "[gateway.upstreams.x]\ninstances = [\"ftp://a\"]",
        "gateway.upstreams.x.instances expected a URL",
    );
}

#[test]
fn the_operations_follow_from_the_routes_or_from_their_names() {
    let sound = read("").unwrap();
    let written = ["gateway:PATCH /orders/{id}", "gateway:POST /orders/{id}"];
    assert!(sound.operations().iter().eq(written));
    let mut renamed = sound.clone();
    let orders = renamed.routes.get_mut("orders").unwrap();
    orders.path = "/orders/{order}".to_owned();
    orders.host = Some("api.example.com".to_owned());
    assert_eq!(
        sound.operations().difference(&renamed.operations()).count(),
        2
    );
    let orders = renamed.routes.get_mut("orders").unwrap();
    orders.operation = Some("/orders/{id}".to_owned());
    assert_eq!(renamed.operations(), sound.operations());
}

#[test]
fn a_setting_that_has_no_meaning_with_mcp_is_refused() {
    for (lines, expected) in [
        (
            "protocol = \"mcp\"\nprotect = [\"PATCH\"]",
            "protect must contain \"POST\"",
        ),
        (
            "protocol = \"mcp\"\nprofile = \"stripe\"",
            "profile must be \"hapax\"",
        ),
        (
            "protocol = \"mcp\"\nunknown = \"look_up\"",
            "unknown must be",
        ),
        (
            "protocol = \"mcp\"\nforwarded_key = \"derived\"",
            "forwarded_key must be",
        ),
        (
            "protocol = \"mcp\"\nmcp = { keys = [] }",
            "mcp.keys must name",
        ),
        (
            "protocol = \"mcp\"\nmcp = { keys = [\"progressToken\"] }",
            "mcp.keys expected",
        ),
        ("mcp = { errors = \"unknown\" }", "mcp has an effect only"),
    ] {
        let route = format!("[gateway.routes.x]\npath = \"/x\"\nupstream = \"orders\"\n{lines}");
        check(&route, &format!("gateway.routes.x.{expected}"));
    }
    let more = "[gateway.routes.x]\npath = \"/x\"\nupstream = \"orders\"\nprotocol = \"mcp\"";
    read(more).unwrap();
}

#[test]
fn the_configuration_of_the_guide_for_mcp_is_accepted() {
    let guide = include_str!("../../../../docs/guides/gateway-mcp.md");
    let (_, rest) = guide.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    parsed(text).unwrap().check().unwrap();
}

#[track_caller]
fn check(more: &str, expected: &str) {
    let wrong = read(more).expect_err("it should be refused").to_string();
    assert!(wrong.contains(expected), "{wrong}");
}

fn read(more: &str) -> Result<Settings, Wrong> {
    let text = format!("{SOUND}\n{more}");
    let settings = parsed(&text)?;
    settings.check()?;
    Ok(settings)
}

fn parsed(text: &str) -> Result<Settings, Wrong> {
    let layers = Layers::of("", Some((Path::new("gateway.toml"), text)), [], [])?;
    let gateway = layers.root().at(&["gateway"]).expect("it has the section");
    gateway.read()
}
