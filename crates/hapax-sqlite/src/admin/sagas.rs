//! Sagas: lists by a filter, and single sagas with their steps and signals.

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{Actor, AdminError, PAGE_MAX, Page, SagaAdmin, SagaLook, saga_object},
    key::Tenant,
    saga::{Decision, Filter, State},
    store::StoreError,
};
use rusqlite::{Row, params};

use super::{decide, handle::SqliteAdmin, view::View};
use crate::{
    query,
    saga::rows::{find_one, saga},
    value::rows,
};

/// Sagas that a page reads, each from another page of the table. This takes some tens of
/// milliseconds.
const LOOK: usize = 5_000;

#[async_trait]
impl SagaAdmin for SqliteAdmin {
    async fn list_sagas(
        &self,
        actor: &Actor,
        filter: &Filter,
        limit: usize,
    ) -> Result<Page<SagaLook>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (tenant, filter) = (actor.tenant().map(str::to_owned), filter.clone());
        self.read(move |view| list(view, tenant.as_deref(), &filter, limit))
            .await
    }

    async fn look_at_saga(&self, actor: &Actor, id: &str) -> Result<SagaLook, AdminError> {
        let (tenant, id) = (actor.tenant.clone(), id.to_owned());
        self.read(move |view| look_at(view, tenant.as_ref(), &id))
            .await
    }

    async fn decide(
        &self,
        actor: &Actor,
        id: &str,
        epoch: i64,
        decision: &Decision,
        reason: &str,
    ) -> Result<(), AdminError> {
        decide::decide(self, actor, id, epoch, decision, reason).await
    }
}

/// The condition on which a saga is listed.
struct Visited {
    id: String,
    name: String,
    version: u32,
}

fn list(
    view: &View<'_>,
    tenant: Option<&str>,
    filter: &Filter,
    limit: usize,
) -> Result<Page<SagaLook>, AdminError> {
    let is_any = filter.name.is_none() && filter.version.is_none();
    let look = if is_any { limit } else { LOOK };
    let visited = visit(view, tenant, filter, look)?;
    let end = visited.last().filter(|_| visited.len() >= look);
    let end = end.map(|it| it.id.clone());
    let fits = |it: &&Visited| {
        filter.name.as_ref().is_none_or(|name| *name == it.name)
            && filter.version.is_none_or(|version| version == it.version)
    };
    let mut items = Vec::new();
    for it in visited.iter().filter(fits).take(limit) {
        items.extend(listed(view, &it.id)?);
    }
    let last = items.last().filter(|_| items.len() == limit);
    let next = last.map(|look| look.saga.id.clone()).or(end);
    Ok(Page { items, next })
}

/// Visits at most `look` sagas by id.
fn visit(
    view: &View<'_>,
    tenant: Option<&str>,
    filter: &Filter,
    look: usize,
) -> Result<Vec<Visited>, AdminError> {
    let after = filter.after.as_deref().unwrap_or_default();
    let mut all = Vec::new();
    for state in State::ALL {
        if filter.state.is_some_and(|wanted| wanted != state) {
            continue;
        }
        let (state, look) = (state.as_str(), rows(look));
        let found = match tenant {
            None => view.list(query!("admin/sagas"), params![state, after, look], visited),
            Some(tenant) => view.list(
                query!("admin/sagas_of_tenant"),
                params![state, after, look, tenant],
                visited,
            ),
        };
        all.append(&mut found?);
    }
    all.sort_by(|one, other| one.id.cmp(&other.id));
    all.truncate(look);
    Ok(all)
}

fn visited(row: &Row<'_>) -> rusqlite::Result<Visited> {
    Ok(Visited {
        id: row.get("id")?,
        name: row.get("name")?,
        version: row.get("version")?,
    })
}

/// Reads a saga without its input, steps and signals.
fn listed(view: &View<'_>, id: &str) -> Result<Option<SagaLook>, AdminError> {
    let found = view.first(query!("admin/saga"), [id], |row| {
        Ok((saga(row), held_until(row)?))
    })?;
    let look = found.map(|(saga, held_until)| {
        Ok::<_, StoreError>(SagaLook {
            saga: saga?,
            held_until,
            at: view.now,
        })
    });
    Ok(look.transpose()?)
}

/// Reads a saga with its steps and signals, if the tenant may see it.
pub(super) fn look_at(
    view: &View<'_>,
    tenant: Option<&Tenant>,
    id: &str,
) -> Result<SagaLook, AdminError> {
    let found = view.with(|conn| find_one(conn, query!("saga/find"), params![id]))?;
    let own = found.filter(|saga| tenant.is_none() || saga.tenant.as_ref() == tenant);
    let missing = || AdminError::not_found(saga_object(id));
    let saga = own.ok_or_else(missing)?;
    let held_until = view.first(query!("admin/saga"), [id], held_until)?;
    Ok(SagaLook {
        saga,
        held_until: held_until.flatten(),
        at: view.now,
    })
}

/// The end of the lease of a saga's owner. The column is zero if there is none.
fn held_until(row: &Row<'_>) -> rusqlite::Result<Option<Timestamp>> {
    let until: i64 = row.get("lease_until")?;
    Ok((until > 0).then(|| Timestamp::from_millis(until)))
}
