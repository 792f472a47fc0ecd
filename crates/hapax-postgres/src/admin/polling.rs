//! Polling endpoints: created, listed, given another token, and removed by operators.

use std::time::Duration;

use async_trait::async_trait;
use hapax::{
    admin::{
        Actor, AdminError, EventsOfType, NewPollingEndpoint, PAGE_MAX, Page, PollAdmin,
        PollingEndpoint, PollingLag, check_overlap, polling_object, too_many_tokens,
    },
    delivery::Start,
    limits::POLLING_LAG_READ,
    poll::TokenHash,
    store::StoreError,
};
use serde_json::json;
use tokio_postgres::Row;

use super::{audited::AuditedTransaction, declared::moment};
use crate::{
    delivery::{settle::text, start},
    error::corrupt,
    poll::started,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

#[async_trait]
impl PollAdmin for Postgres {
    async fn create_polling_endpoint(
        &self,
        actor: &Actor,
        new: &NewPollingEndpoint,
    ) -> Result<PollingEndpoint, AdminError> {
        let types = new.check(actor)?;
        let object = polling_object(&new.name);
        let mut act = AuditedTransaction::begin(self).await?;
        let (word, time) = start::columns(new.start);
        let params: [&dyn Param; 2] = [&word, &time];
        // From the snapshot of this statement on no event is skipped.
        let started = started(&act.ask(query!("poll/start"), &params).await?)?;
        let written = json!(types).to_string();
        let (name, tenant, by) = (&new.name, new.tenant.as_deref(), text(&actor.name));
        let (token, secret) = (&new.token.as_bytes()[..], &new.secret.as_bytes()[..]);
        let (snapshot, now) = (started.snapshot.as_deref(), self.time());
        let params: [&dyn Param; 10] = [
            name,
            &tenant,
            &new.all_tenants,
            &written,
            &token,
            &secret,
            &started.high,
            &snapshot,
            &now,
            &by,
        ];
        let created = act.ask(query!("poll/create"), &params).await?;
        let Some(row) = created.first() else {
            let what = format!("{object} already exists: remove it, or use another name");
            let detail = json!({"why": what});
            act.note(actor, "create", &object, &detail, "refused")
                .await?;
            act.commit().await?;
            return Err(AdminError::conflict(what));
        };
        let created = shown(row);
        let detail = new.detail(&types);
        act.note(actor, "create", &object, &detail, "done").await?;
        act.commit().await?;
        Ok(created)
    }

    async fn polling_endpoints(
        &self,
        actor: &Actor,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<PollingEndpoint>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let after = after.map(text).unwrap_or_default();
        let (tenant, count) = (actor.tenant(), rows(limit));
        let params: [&dyn Param; 3] = [&after, &tenant, &count];
        let found = self.ask(query!("poll/list"), &params).await?;
        let items: Vec<_> = found.iter().map(shown).collect();
        Ok(Page::up_to(limit, items, |it| it.name.clone()))
    }

    async fn polling_endpoint(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<PollingEndpoint, AdminError> {
        let found = self.ask(query!("poll/show"), &[&text(name)]).await?;
        PollingEndpoint::present(found.first().map(shown), actor, name)
    }

    async fn rotate_polling_token(
        &self,
        actor: &Actor,
        name: &str,
        token: &TokenHash,
        overlap: Duration,
    ) -> Result<PollingEndpoint, AdminError> {
        check_overlap(overlap)?;
        let mut act = held(self, actor, name).await?;
        let (object, time) = (polling_object(name), self.time());
        let params: [&dyn Param; 2] = [&name, &time];
        let previous = act.ask(query!("poll/previous_tokens"), &params).await?;
        let (now, too_many) = previous_tokens(&previous)?;
        let until = (!overlap.is_zero()).then(|| Moment(now.0.after(overlap)));
        let params: [&dyn Param; 3] = [&name, &until, &now];
        if until.is_some() {
            if let Some(what) = too_many {
                let detail = json!({"why": what});
                act.note(actor, "rotate", &object, &detail, "refused")
                    .await?;
                act.commit().await?;
                return Err(AdminError::conflict(what));
            }
            act.ask(query!("poll/keep_token"), &params).await?;
        }
        act.ask(query!("poll/end_tokens"), &params).await?;
        let token = &token.as_bytes()[..];
        let params: [&dyn Param; 3] = [&name, &token, &until];
        let rotated = act.ask(query!("poll/rotate"), &params).await?;
        let rotated = PollingEndpoint::present(rotated.first().map(shown), actor, name)?;
        let detail = json!({"old_token_until": rotated.old_token_until});
        act.note(actor, "rotate", &object, &detail, "done").await?;
        act.commit().await?;
        Ok(rotated)
    }

    async fn seek_polling_endpoint(
        &self,
        actor: &Actor,
        name: &str,
        to: Start,
    ) -> Result<PollingEndpoint, AdminError> {
        let mut act = held(self, actor, name).await?;
        let before = act.ask(query!("poll/show"), &[&name]).await?;
        let before = before.first().map(|row| row.get::<_, i64>("frontier"));
        let (word, time) = start::columns(to);
        let params: [&dyn Param; 2] = [&word, &time];
        let started = started(&act.ask(query!("poll/start"), &params).await?)?;
        let (snapshot, now) = (started.snapshot.as_deref(), self.time());
        let params: [&dyn Param; 4] = [&name, &started.high, &snapshot, &now];
        let moved = act.ask(query!("poll/seek"), &params).await?;
        let moved = PollingEndpoint::present(moved.first().map(shown), actor, name)?;
        let detail = json!({"to": to, "from": before, "position": moved.position});
        act.note(actor, "seek", &polling_object(name), &detail, "done")
            .await?;
        act.commit().await?;
        Ok(moved)
    }

    async fn polling_lag(&self, actor: &Actor, name: &str) -> Result<PollingLag, AdminError> {
        let endpoint = self.polling_endpoint(actor, name).await?;
        let (tenant, limit) = (endpoint.tenant.as_deref(), rows(POLLING_LAG_READ));
        let params: [&dyn Param; 3] = [&endpoint.position, &tenant, &limit];
        let found = self.ask(query!("poll/lag"), &params).await?;
        let looked = found.first().map_or(0, |row| row.get::<_, i64>("looked"));
        let of_types: Vec<_> = found.iter().filter_map(counted).collect();
        let is_all = looked < limit;
        Ok(PollingLag::of(&endpoint.types, &of_types, is_all))
    }

    async fn remove_polling_endpoint(&self, actor: &Actor, name: &str) -> Result<(), AdminError> {
        let mut act = held(self, actor, name).await?;
        act.ask(query!("poll/remove"), &[&name]).await?;
        act.note(actor, "remove", &polling_object(name), &json!({}), "done")
            .await?;
        Ok(act.commit().await?)
    }
}

/// Begins a transaction that has locked an endpoint that the actor may see.
async fn held<'a>(
    store: &'a Postgres,
    actor: &Actor,
    name: &str,
) -> Result<AuditedTransaction<'a>, AdminError> {
    let mut act = AuditedTransaction::begin(store).await?;
    let found = act.ask(query!("poll/hold"), &[&text(name)]).await?;
    let may_see = |row: &Row| {
        let tenant: Option<&str> = row.get("tenant");
        actor.tenant().is_none() || tenant == actor.tenant()
    };
    if found.first().is_some_and(may_see) {
        return Ok(act);
    }
    act.rollback().await;
    Err(AdminError::not_found(polling_object(name)))
}

/// The time of a rotation, and why one more previous token is refused, if it is.
fn previous_tokens(found: &[Row]) -> Result<(Moment, Option<String>), StoreError> {
    let row = found.first();
    let row = row.ok_or_else(|| corrupt("the query that counts tokens returned no row"))?;
    let number = u64::try_from(row.get::<_, i64>("number")).unwrap_or(0);
    let too_many = too_many_tokens(number, moment(row, "first_end"));
    Ok((row.get("time"), too_many))
}

/// The events of one type, if the row has a type.
fn counted(row: &Row) -> Option<EventsOfType> {
    let kind: Option<String> = row.get("type");
    Some(EventsOfType {
        kind: kind?,
        number: u64::try_from(row.get::<_, i64>("number")).unwrap_or(0),
        oldest_at: row.get::<_, Moment>("oldest_at").0,
    })
}

fn shown(row: &Row) -> PollingEndpoint {
    PollingEndpoint {
        name: row.get("name"),
        tenant: row.get("tenant"),
        all_tenants: row.get("all_tenants"),
        types: serde_json::from_str(row.get("types")).unwrap_or_default(),
        created_at: row.get::<_, Moment>("created_at").0,
        created_by: row.get("created_by"),
        position: row.get("frontier"),
        committed_at: moment(row, "committed_at"),
        last_polled_at: moment(row, "last_polled_at"),
        old_token_until: moment(row, "old_token_until"),
    }
}
