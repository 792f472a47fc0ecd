//! The shop as a process that always uses the same port, and the orders that it stores.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use hapax_testkit::{http::HttpClient, port::free_port, wait::Patience};
use http::Method;
use tempfile::TempDir;

/// The token that all clients use.
pub(crate) const TOKEN: &str = "fleet";

/// The folder and the address of the shop.
pub(crate) struct Home {
    folder: TempDir,
    address: SocketAddr,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn start(&self) -> Shop {
        let log = self.folder.path().join("shop.log");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_shop"))
            .args(["--listen", &self.address.to_string(), "--data-dir"])
            .arg(self.folder.path())
            .args([
                "--no-demo",
                "--no-relay",
                "--token",
                &format!("{TOKEN}=fleet"),
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Shop(child.unwrap())
    }

    /// The number of stored orders, by the customer id that each order has.
    pub(crate) async fn orders(&self) -> BTreeMap<String, usize> {
        let (client, mut orders) = (HttpClient::new(), BTreeMap::new());
        let mut page = self.url("/orders?limit=200");
        loop {
            let bearer = format!("Bearer {TOKEN}");
            let headers = [("authorization", bearer.as_str())];
            let answer = client
                .send(Method::GET, &page, &headers, bytes::Bytes::new())
                .await;
            let list = answer.unwrap().json().unwrap();
            for order in list["items"].as_array().unwrap() {
                let customer = order["customer_id"].as_str().unwrap().to_owned();
                *orders.entry(customer).or_default() += 1;
            }
            let Some(next) = list["next"].as_str() else {
                return orders;
            };
            page = self.url(&format!("/orders?limit=200&after={next}"));
        }
    }
}

/// A running shop. Dropping it kills the process.
pub(crate) struct Shop(Child);

impl Shop {
    pub(crate) async fn ready(&mut self, home: &Home) {
        let (client, patience) = (HttpClient::new(), Patience::within(Duration::from_mins(1)));
        loop {
            let answer = client.get(&home.url("/readyz")).await;
            if answer.is_ok_and(|answer| answer.status == 200) {
                return;
            }
            assert!(
                self.0.try_wait().unwrap().is_none(),
                "the shop ended by itself"
            );
            patience.pause().await;
        }
    }

    /// Kills the process with SIGKILL and waits until it has ended.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}
