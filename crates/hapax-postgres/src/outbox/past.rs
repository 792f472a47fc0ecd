//! Tenant fairness: finding events of other tenants beyond the many events of one tenant.

use hapax::{
    delivery::{Frontier, Shards},
    key::Tenant,
    limits::READ_BYTES,
    store::{Past, StoreError},
};

use super::{
    look::{DecodedEvents, SCAN, shards},
    segment::{READ_PAST, next_start, oldest, rotation},
};
use crate::{
    error::corrupt,
    frontier::{History, Mark},
    postgres::Postgres,
    value::{Param, rows},
};

impl Postgres {
    /// Searches some tens of thousands of rows of one segment, except those of some tenants.
    pub(super) async fn look_past(
        &self,
        head: &Frontier,
        beyond: i64,
        of: Shards,
        except: &[Option<Tenant>],
        limit: usize,
    ) -> Result<Past, StoreError> {
        let only = shards(of);
        let excluded: Vec<&str> = except.iter().flatten().map(Tenant::as_str).collect();
        let is_nobody = except.iter().any(Option::is_none);
        let params: [&dyn Param; 7] = [
            &beyond,
            &excluded,
            &rows(limit),
            &rows(READ_BYTES),
            &only.as_deref(),
            &SCAN,
            &is_nobody,
        ];
        let found = self.ask(READ_PAST.at(beyond), &params).await?;
        let (first, found) = found
            .split_first()
            .ok_or_else(|| corrupt("the query past a tenant returned no row"))?;
        let (until, last): (Option<i64>, i64) = (first.get("id"), first.get("sequence"));
        if Mark::of(head)?.history(first.get("history")) != History::Same {
            // The caller gets the error from its next regular read.
            return Ok(Past {
                events: Vec::new(),
                until: beyond,
            });
        }
        let found = DecodedEvents::of(found, limit, self.keyring())?;
        let until = match (found.last, until) {
            (Some(last), _) if found.is_cut => last,
            (_, Some(until)) => until,
            // The rest of this turn was searched, and the next one has begun.
            (_, None) if rotation(last) > rotation(beyond) => next_start(beyond, last),
            (found, None) => found.unwrap_or(beyond).max(oldest(last)),
        };
        Ok(Past {
            events: found.events,
            until,
        })
    }
}
