//! `bench load`: the command for the load generator.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;

use super::{Keys, Plan, Request, Tally, Until, burst, run};

/// Puts a service under load.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Address of the service
    #[arg(long, default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// Number of connections, each with one request in flight
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Threads that share the connections
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Path of the requests
    #[arg(long, default_value = "/orders")]
    path: String,
    /// Bearer token of the requests
    #[arg(long, default_value = "demo-alice")]
    token: String,
    /// Body of the requests
    #[arg(long, default_value = crate::ORDER)]
    body: String,
    /// Number of keys, which are used in a cycle; by default each request has a new key
    #[arg(long)]
    keys: Option<u64>,
    /// Seed of the sequence of keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stops after this number of requests instead of after --seconds
    #[arg(long)]
    count: Option<u64>,
    /// Seconds during which responses are counted
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seconds of warm-up before, which are not counted
    #[arg(long, default_value_t = 1)]
    warm_up: u64,
    /// Requests per second; by default as many as possible
    #[arg(long)]
    pace: Option<f64>,
    /// Sends one request on each connection, all at once
    #[arg(long)]
    burst: bool,
}

impl Flags {
    /// Runs the load and returns the tally.
    pub(crate) async fn run(self) -> anyhow::Result<Tally> {
        ensure!(
            self.connections > 0 && self.threads > 0,
            "--connections and --threads must be at least 1"
        );
        ensure!(
            self.threads <= self.connections,
            "--threads must not be more than --connections"
        );
        ensure!(self.keys != Some(0), "--keys must be at least 1");
        ensure!(
            self.pace.is_none_or(|pace| pace >= 1.0),
            "--pace must be at least 1"
        );
        let request = Request::post(&self.path, &self.token, &self.body, self.seed);
        if self.burst {
            return self.burst(&request).await;
        }
        let until = match self.count {
            Some(count) => Until::Count(count),
            None => Until::Elapsed {
                warm_up: Duration::from_secs(self.warm_up),
                window: Duration::from_secs(self.seconds.max(1)),
            },
        };
        run(&Plan {
            address: self.address,
            connections: self.connections,
            threads: self.threads,
            request,
            keys: self.keys.map_or(Keys::Fresh, Keys::Cycle),
            pace: self.pace,
            until,
        })
        .await
    }

    async fn burst(&self, request: &Request) -> anyhow::Result<Tally> {
        let keys = self.keys.unwrap_or(u64::MAX);
        let requests = (0..self.connections as u64)
            .map(|number| {
                let mut request = request.clone();
                request.take_key(number % keys);
                request
            })
            .collect();
        let greeting = Request::get("/healthz", None);
        Ok(burst(self.address, &greeting, requests).await?.0)
    }
}
