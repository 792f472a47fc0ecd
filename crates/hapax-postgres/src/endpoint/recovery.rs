//! Recovery of endpoints on PostgreSQL: their probes, and what follows a probe that succeeds.

use std::time::Duration;

use async_trait::async_trait;
use hapax::{
    endpoint::{ClaimedDelivery, EndpointRecovery},
    limits::ENDPOINT_REPLAYED,
    operational::Occurrence,
    store::StoreError,
};

use super::{RELAY, Work, bumped, claimed};
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Param, millis, rows},
};

#[async_trait]
impl EndpointRecovery for Postgres {
    async fn claim_probes(
        &self,
        limit: usize,
        lease: Duration,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let (limit, lease, time) = (rows(limit), millis(lease), self.time());
        let params: [&dyn Param; 3] = [&limit, &lease, &time];
        let found = self.commit(query!("endpoint/probe"), &params).await?;
        let claimed = found.iter().filter_map(|row| claimed(row, self.keyring()));
        claimed.collect()
    }

    async fn postpone_probe(
        &self,
        endpoint: &str,
        version: i64,
        waits: Option<(Duration, Duration)>,
    ) -> Result<(), StoreError> {
        let (endpoint, time) = (text(endpoint), self.time());
        let (first, longest) = waits
            .map(|(one, other)| (millis(one), millis(other)))
            .unzip();
        let params: [&dyn Param; 5] = [&endpoint, &version, &first, &longest, &time];
        let postponed = self.commit(query!("endpoint/postpone_probe"), &params);
        postponed.await.map(drop)
    }

    async fn repeat_probe(&self, endpoint: &str, version: i64) -> Result<(), StoreError> {
        let (endpoint, time) = (text(endpoint), self.time());
        let params: [&dyn Param; 3] = [&endpoint, &version, &time];
        let repeated = self.commit(query!("endpoint/repeat_probe"), &params);
        repeated.await.map(drop)
    }

    async fn recover_endpoint(
        &self,
        endpoint: &str,
        version: i64,
        in_order: bool,
    ) -> Result<bool, StoreError> {
        let (endpoint, time) = (text(endpoint), self.time());
        let mut work = Work::begin(self).await?;
        let next = bumped(&work.ask(query!("endpoint/bump"), &[]).await?)?;
        if !in_order {
            let params: [&dyn Param; 3] = [&endpoint, &rows(ENDPOINT_REPLAYED), &time];
            work.ask(query!("endpoint/release"), &params).await?;
        }
        let params: [&dyn Param; 6] = [&endpoint, &version, &next, &in_order, &RELAY, &time];
        let recovered = work.ask(query!("endpoint/recover"), &params).await?;
        let id = endpoint.clone();
        let report = |tenant| Occurrence::EndpointRecovered {
            endpoint: id,
            tenant,
        };
        work.end(&recovered, "enable", &endpoint, RECOVERED, report)
            .await
    }

    async fn end_catch_up(&self, endpoint: &str) -> Result<bool, StoreError> {
        let endpoint = text(endpoint);
        let drained = self
            .ask(query!("endpoint/is_drained"), &[&endpoint])
            .await?;
        if !drained.first().is_some_and(|row| row.get("is_drained")) {
            return Ok(false);
        }
        let mut work = Work::begin(self).await?;
        let next = bumped(&work.ask(query!("endpoint/bump"), &[]).await?)?;
        let params: [&dyn Param; 2] = [&endpoint, &next];
        let ended = work.ask(query!("endpoint/end_catch_up"), &params).await?;
        if ended.is_empty() {
            work.rollback().await;
            return Ok(false);
        }
        work.commit().await?;
        Ok(true)
    }
}

/// Why a relay enables an endpoint, in the audit log.
const RECOVERED: &str = "it accepted a probe";
