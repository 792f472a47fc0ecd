//! An unchanged MCP server and a client, both on the Python SDK of MCP, with the gateway between them.

use std::fs;

use hapax_testkit::program::succeed;
use serde_json::{Value, json};

use crate::{
    gateway::{Gateway, Home, Store, configuration},
    upstream::{Packaged, python},
};

/// A running server, whose tool writes to a ledger.
struct Server(Packaged);

impl Server {
    /// Starts a server that responds with `json` or with a `stream`.
    async fn start(form: &str) -> Self {
        Self(Packaged::start("upstream/mcp_server.py", &["ledger", form]).await)
    }

    /// The configuration of a gateway in front of it.
    fn configuration(&self) -> String {
        let text = configuration(self.0.address, "protocol = \"mcp\"");
        text.replace("timeout = \"1s\"", "timeout = \"30s\"")
    }

    fn ledger(&self) -> String {
        fs::read_to_string(self.0.folder.path().join("ledger")).unwrap_or_default()
    }
}

#[tokio::test]
async fn a_tool_of_the_python_sdk_acts_once_for_a_key() {
    for form in ["json", "stream"] {
        let server = Server::start(form).await;
        let home = Home::fresh(Store::Sqlite).await;
        let mut gateway = Gateway::start(&home, &server.configuration()).await;
        let calls = ["a", "tea", "a", "tea", "b", "tea", "a", "coffee"];
        let called = call(&gateway, &calls).await;
        let [first, again, other, conflict] = called.as_slice() else {
            panic!("{called:?}");
        };
        check_result(first, "order 1");
        check_result(other, "order 2");
        assert_eq!(first["result"], again["result"], "{called:?}");
        assert_eq!(first["tools"], json!(["place_order"]), "{called:?}");
        assert_eq!(conflict["error"], 409, "{called:?}");
        let code = "CONFLICT.idempotency.payload_mismatch";
        assert_eq!(conflict["data"]["code"], code, "{called:?}");
        // Progress goes to the client of the first call only.
        let reported = if form == "stream" {
            json!([[1.0, 2.0]])
        } else {
            json!([])
        };
        assert_eq!(first["progress"], reported, "{called:?}");
        assert_eq!(again["progress"], json!([]), "{called:?}");

        gateway.reload(&server.configuration()).await;
        let reloaded = call(&gateway, &["a", "tea"]).await;
        assert_eq!(reloaded[0]["result"], first["result"], "{reloaded:?}");
        gateway.restart().await;
        let restarted = call(&gateway, &["b", "tea"]).await;
        assert_eq!(restarted[0]["result"], other["result"], "{restarted:?}");
        assert_eq!(server.ledger(), "tea\ntea\n");
    }
}

/// Has the client call the tool with these keys and items.
async fn call(gateway: &Gateway, calls: &[&str]) -> Vec<Value> {
    let mut client = python("clients/mcp_client.py");
    client.arg(format!("http://{}/mcp", gateway.address()));
    client.args(calls);
    let output = succeed(client).await;
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn check_result(called: &Value, text: &str) {
    let result = &called["result"];
    assert_eq!(result["content"][0]["text"], text, "{called}");
    assert_eq!(result["isError"], false, "{called}");
}
