//! Queries of the pages whose results are masked, or limited to what the actor may see. Everything
//! else is asked of the store directly.

use std::sync::Arc;

use hapax::{
    admin::{Actor, Admin, AdminError, DestinationIndex, EndpointDelivery, Timeline, Trace},
    event::EventId,
    mask::{Mask, Shown},
    outbox::OutboxEvent,
};

/// The queries of the pages.
pub(crate) struct Queries {
    index: DestinationIndex,
    mask: Mask,
}

impl Queries {
    pub(crate) fn new(index: DestinationIndex, mask: Mask) -> Self {
        Self { index, mask }
    }

    pub(crate) fn store(&self) -> &dyn Admin {
        self.index.store()
    }

    pub(crate) fn index(&self) -> &DestinationIndex {
        &self.index
    }

    pub(crate) fn shown(&self, content_type: Option<&str>, bytes: &[u8]) -> Shown {
        self.mask.content(content_type, bytes)
    }

    /// The names whose values are masked.
    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// The beginning of a receiver's response, masked. If it is incomplete JSON, only its length.
    pub(crate) fn head(&self, head: &[u8]) -> String {
        const SHOWN: usize = 512;

        match self.mask.head(head) {
            Some(text) => text.chars().take(SHOWN).collect(),
            None => format!("incomplete JSON, {} bytes", head.len()),
        }
    }

    /// Masks the excerpts of an attempt at an endpoint.
    pub(crate) fn mask_exchange(&self, attempt: &mut EndpointDelivery) {
        attempt.mask(&self.mask);
    }

    pub(crate) fn hides(&self, name: &str) -> bool {
        self.mask.hides(name)
    }

    /// An event by id or position. To respond fast, an event is searched by its id only around the
    /// time that the id contains.
    pub(crate) async fn event(
        &self,
        actor: &Actor,
        id: &str,
    ) -> Result<Arc<OutboxEvent>, AdminError> {
        let (found, is_near) = match (id.parse::<i64>(), id.parse::<EventId>()) {
            (Ok(position), _) => (self.store().event_at(actor, position).await?, false),
            (_, Ok(id)) => (self.store().find_event_near(actor, id).await?, true),
            _ => (None, false),
        };
        let nowhere = || {
            let id = id.escape_debug();
            AdminError::not_found(if is_near {
                format!(
                    "event {id} near the creation time in its id (if the id was created elsewhere, \
                     search all events: the list of events with the filter id:{id})"
                )
            } else {
                format!("event {id}")
            })
        };
        found.ok_or_else(nowhere)
    }

    /// The state of an event at every destination.
    pub(crate) async fn traces(
        &self,
        actor: &Actor,
        position: i64,
    ) -> Result<Vec<Trace>, AdminError> {
        let mut traces = self.store().trace(position).await?;
        self.index.show(actor, &mut traces).await?;
        Ok(traces)
    }

    pub(crate) async fn timeline_of_event(
        &self,
        actor: &Actor,
        id: &str,
    ) -> Result<Timeline, AdminError> {
        let event = self.event(actor, id).await?;
        let found = self.store().timeline_of_event(actor, event).await?;
        self.seen(actor, found).await
    }

    pub(crate) async fn timeline_of_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: Option<&str>,
        key: &str,
    ) -> Result<Timeline, AdminError> {
        let found = self.store().timeline_of_key(actor, tenant, operation, key);
        self.seen(actor, found.await?).await
    }

    async fn seen(&self, actor: &Actor, mut found: Timeline) -> Result<Timeline, AdminError> {
        for emitted in &mut found.events {
            self.index.show(actor, &mut emitted.traces).await?;
        }
        Ok(found)
    }
}
