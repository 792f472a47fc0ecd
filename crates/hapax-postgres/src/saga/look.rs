//! Queries for sagas with their steps and signals.
//!
//! The row of a saga is read before its steps. If the row says that the saga has ended, the steps
//! that are read after it are therefore complete.

use std::collections::HashMap;

use futures_util::future::{try_join, try_join3};
use hapax::{
    admin::SagaLook,
    key::Tenant,
    saga::{Filter, SagaRecord},
    store::StoreError,
};
use tokio_postgres::Row;

use super::{rows, states};
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Param, rows as bound},
};

/// A filter for sagas, and the maximum number of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing<'a> {
    pub(crate) filter: &'a Filter,
    pub(crate) tenant: Option<&'a Tenant>,
    pub(crate) limit: usize,
}

/// Reads a saga with its steps.
pub(crate) async fn see(store: &Postgres, id: &str) -> Result<Option<SagaLook>, StoreError> {
    let time = store.time();
    let (one, ids): ([&dyn Param; 2], _) = ([&id, &time], vec![id]);
    let looked = store.ask_all(async |link| {
        let sql = [
            query!("saga/find"),
            query!("saga/steps"),
            query!("saga/signals"),
        ];
        let [find, steps, signals] = link.ready(sql).await?;
        let all: [&dyn Param; 1] = [&ids];
        try_join3(
            link.rows(&find, &one),
            link.rows(&steps, &all),
            link.rows(&signals, &all),
        )
        .await
    });
    let (found, steps, signals) = looked.await?;
    let Some(row) = found.first() else {
        return Ok(None);
    };
    let mut seen = seen(row)?;
    seen.saga.steps = steps.iter().map(rows::begun).collect::<Result<_, _>>()?;
    seen.saga.signals = signals
        .iter()
        .map(rows::signal_of)
        .collect::<Result<_, _>>()?;
    Ok(Some(seen))
}

/// Lists sagas by id, without their steps.
pub(super) async fn list(
    store: &Postgres,
    filter: &Filter,
    limit: usize,
) -> Result<Vec<SagaRecord>, StoreError> {
    let states = states(filter.state);
    let after = text(filter.after.as_deref().unwrap_or_default());
    let name = filter.name.as_deref().map(text);
    let version = filter.version.map(i64::from);
    let limit = bound(limit);
    let params: [&dyn Param; 5] = [&states, &after, &name, &version, &limit];
    let listed = store.ask(query!("saga/list"), &params).await?;
    listed.iter().map(rows::saga).collect()
}

/// Adds the steps and signals, which have separate rows, to owned sagas. The result of a saga
/// whose steps or signals cannot be read is an error.
pub(super) async fn whole(
    store: &Postgres,
    sagas: Vec<SagaRecord>,
) -> Result<Vec<Result<SagaRecord, StoreError>>, StoreError> {
    if sagas.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<&str> = sagas.iter().map(|saga| saga.id.as_str()).collect();
    let looked = store.ask_all(async |link| {
        let [steps, signals] = link
            .ready([query!("saga/steps"), query!("saga/signals")])
            .await?;
        let all: [&dyn Param; 1] = [&ids];
        try_join(link.rows(&steps, &all), link.rows(&signals, &all)).await
    });
    let (steps, signals) = looked.await?;
    let mut steps = by_saga(&steps, rows::begun);
    let mut signals = by_saga(&signals, rows::signal_of);
    let whole = |mut saga: SagaRecord| {
        saga.steps = steps.remove(&saga.id).transpose()?.unwrap_or_default();
        saga.signals = signals.remove(&saga.id).transpose()?.unwrap_or_default();
        Ok(saga)
    };
    Ok(sagas.into_iter().map(whole).collect())
}

/// A page of sagas, and the id at which the search ended if there may be more.
pub(crate) struct Leaf {
    pub(crate) sagas: Vec<SagaLook>,
    pub(crate) end: Option<String>,
}

/// Lists sagas as [`list`] does, but reads at most `look` rows. If a tenant is given, only its
/// sagas are read.
pub(crate) async fn leaf(
    store: &Postgres,
    listing: Listing<'_>,
    look: i64,
) -> Result<Leaf, StoreError> {
    let Listing {
        filter,
        tenant,
        limit,
    } = listing;
    let states = states(filter.state);
    let after = text(filter.after.as_deref().unwrap_or_default());
    let name = filter.name.as_deref().map(text);
    let version = filter.version.map(i64::from);
    let (tenant, limit, time) = (tenant.map(Tenant::as_str), bound(limit), store.time());
    let params: [&dyn Param; 8] = [
        &states, &after, &name, &limit, &time, &version, &look, &tenant,
    ];
    let found = store.ask(query!("admin/sagas"), &params).await?;
    let full = found
        .first()
        .filter(|row| row.get::<_, i64>("looked") >= look);
    let end = full.map(|row| row.get("end_id"));
    let fits = found
        .iter()
        .filter(|row| row.get::<_, Option<&str>>(0).is_some());
    Ok(Leaf {
        sagas: fits.map(seen).collect::<Result<_, _>>()?,
        end,
    })
}

/// Groups rows by their saga; an error for a saga with an unreadable row.
fn by_saga<T>(
    found: &[Row],
    read: impl Fn(&Row) -> Result<T, StoreError>,
) -> HashMap<String, Result<Vec<T>, StoreError>> {
    let mut of_saga: HashMap<String, Result<Vec<T>, StoreError>> = HashMap::new();
    for row in found {
        let all = of_saga.entry(row.get(0)).or_insert_with(|| Ok(Vec::new()));
        match (read(row), all) {
            (Ok(one), Ok(all)) => all.push(one),
            (Ok(_), Err(_)) => {}
            (Err(error), all) => *all = Err(rows::of_saga(row, error)),
        }
    }
    of_saga
}

fn seen(row: &Row) -> Result<SagaLook, StoreError> {
    Ok(SagaLook {
        saga: rows::saga(row)?,
        held_until: rows::perhaps(row, "lease_until")?,
        at: rows::moment(row, "at")?,
    })
}
