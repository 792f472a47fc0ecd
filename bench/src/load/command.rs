//! `bench load`: the generator by hand.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;

use super::{Keys, Plan, Request, Tally, Until, burst, run};

/// Puts a service under load.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The service
    #[arg(long, default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Threads that share them
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// What is posted to
    #[arg(long, default_value = "/orders")]
    path: String,
    /// Who asks
    #[arg(long, default_value = "demo-alice")]
    token: String,
    /// What is posted
    #[arg(long, default_value = crate::ORDER)]
    body: String,
    /// Keys that are used round and round; a fresh one each time when absent
    #[arg(long)]
    keys: Option<u64>,
    /// Which sequence of keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stops after so many requests instead of --seconds
    #[arg(long)]
    count: Option<u64>,
    /// How long answers are counted
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How long they are not counted before
    #[arg(long, default_value_t = 1)]
    warm_up: u64,
    /// Sends so many requests per second instead of as many as can be
    #[arg(long)]
    pace: Option<f64>,
    /// Sends one request on each connection, all at once
    #[arg(long)]
    burst: bool,
}

impl Flags {
    /// Runs it.
    pub(crate) async fn run(self) -> anyhow::Result<Tally> {
        ensure!(
            self.connections > 0 && self.threads > 0,
            "nothing would be sent"
        );
        ensure!(
            self.threads <= self.connections,
            "more threads than connections"
        );
        ensure!(self.keys != Some(0), "--keys is at least 1");
        ensure!(
            self.pace.is_none_or(|pace| pace >= 1.0),
            "--pace is at least 1"
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
