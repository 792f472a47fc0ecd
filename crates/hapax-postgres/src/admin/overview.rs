//! Overview figures: recent commits and deliveries, backlogs and dead letters.
//!
//! The cost does not grow with the size of the database: everything is counted along an index up to
//! a bound. Beyond it, a number is an estimate or a lower limit, and marked as such.

use async_trait::async_trait;
use futures_util::future::try_join;
use hapax::{
    Timestamp,
    admin::{
        Activity, Actor, AdminError, Count, CountKind, KeyState, Overview, OverviewAdmin,
        PartitionStatus, Stalled, StateCount,
    },
    delivery::Backlog,
    saga::State,
    store::Settlements as _,
};

use super::{declared::moment, events, partitions, stalled};
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

#[async_trait]
impl OverviewAdmin for Postgres {
    async fn overview(&self, actor: &Actor) -> Result<Overview, AdminError> {
        let partitions = partitions::partitions(self, actor).await?;
        of_partitions(self, actor, &partitions).await
    }

    async fn stalled(&self, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
        let partitions = partitions::partitions(self, actor).await?;
        stalled::of_partitions(self, actor, &partitions).await
    }

    async fn overview_and_stalled(
        &self,
        actor: &Actor,
    ) -> Result<(Overview, Vec<Stalled>), AdminError> {
        let partitions = partitions::partitions(self, actor).await?;
        // The two queries are independent of each other.
        let figures = of_partitions(self, actor, &partitions);
        try_join(figures, stalled::of_partitions(self, actor, &partitions)).await
    }

    async fn partition_backlog(&self, partition: &str) -> Result<Backlog, AdminError> {
        Ok(self.backlog(&text(partition)).await?)
    }
}

async fn of_partitions(
    store: &Postgres,
    actor: &Actor,
    partitions: &[PartitionStatus],
) -> Result<Overview, AdminError> {
    let at = store.now().0;
    let activity = recent(store, actor, at, partitions).await?;
    let (sagas, keys_stored) = stored(store, actor).await?;
    Ok(Overview::of(at, partitions, activity, sagas, keys_stored))
}

/// Reads what happened in the recent period.
async fn recent(
    store: &Postgres,
    actor: &Actor,
    at: Timestamp,
    partitions: &[PartitionStatus],
) -> Result<Activity, AdminError> {
    let since = Timestamp::from_millis(at.as_millis() - events::millis(Activity::WINDOW));
    let first = events::id_at(store, Moment(since)).await?;
    let names: Vec<&str> = partitions
        .iter()
        .map(|partition| partition.name.as_str())
        .collect();
    let (since, tenant) = (Moment(since), actor.tenant());
    let params: [&dyn Param; 5] = [&since, &Activity::ROWS, &tenant, &first, &names];
    let found = store.ask(query!("admin/lately"), &params).await?;
    let mut activity = Activity::default();
    for row in &found {
        let (what, name): (&str, String) = (row.get(0), row.get(1));
        let number = row
            .get::<_, Option<i64>>("number")
            .unwrap_or(0)
            .unsigned_abs();
        let count = Count::estimated(number, row.get("looked"), moment(row, "since"), at);
        match what {
            "committed" => activity.committed = count,
            "delivered" => activity.delivered.entry(name).or_default().add(count),
            "failed" => activity.failed.entry(name).or_default().add(count),
            _ => activity
                .keys
                .extend(KeyState::named(&name).map(|state| (state, count))),
        }
    }
    Ok(activity)
}

/// Sagas by state, and the estimated number of keys, which is not available for a single tenant.
async fn stored(
    store: &Postgres,
    actor: &Actor,
) -> Result<(Vec<StateCount>, Option<Count>), AdminError> {
    let states: Vec<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
    let tenant = actor.tenant();
    let params: [&dyn Param; 3] = [&Activity::ROWS, &tenant, &states];
    let found = store.ask(query!("admin/stored"), &params).await?;
    let (mut sagas, mut keys) = (Vec::new(), None);
    for row in &found {
        let number: i64 = row.get(1);
        match State::named(row.get(0)) {
            Some(state) => {
                let count =
                    Count::counted(number.unsigned_abs(), row.get("looked"), Activity::ROWS);
                let state = state.as_str();
                sagas.push(StateCount { state, count });
            }
            None if number >= 0 && tenant.is_none() => {
                keys = Some(Count {
                    number: number.unsigned_abs(),
                    kind: CountKind::About,
                });
            }
            None => {}
        }
    }
    Ok((sagas, keys))
}
