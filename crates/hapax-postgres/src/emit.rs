//! Built events as the columns of one statement.

use hapax::{key::Tenant, outbox::BuiltEvent};

use crate::value::{Moment, Param};

/// The columns of `outbox/emit`, one array each.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    ids: Vec<String>,
    kinds: Vec<&'a str>,
    tenants: Vec<Option<&'a str>>,
    aggregates: [Vec<Option<&'a str>>; 2],
    sequences: Vec<Option<i64>>,
    payloads: Vec<&'a str>,
    headers: Vec<&'a str>,
    created: Vec<Moment>,
    available: Vec<Option<Moment>>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(events: &[&'a BuiltEvent]) -> Self {
        let all = || events.iter().copied();
        let about = |sealed: &'a BuiltEvent| sealed.event.aggregate.as_ref();
        Self {
            ids: all().map(|it| it.event.id.to_string()).collect(),
            kinds: all().map(|it| it.event.kind.as_str()).collect(),
            tenants: all()
                .map(|it| it.event.tenant.as_ref().map(Tenant::as_str))
                .collect(),
            aggregates: [
                all()
                    .map(|it| about(it).map(|it| it.kind.as_str()))
                    .collect(),
                all().map(|it| about(it).map(|it| it.id.as_str())).collect(),
            ],
            sequences: all().map(|it| it.event.sequence).collect(),
            payloads: all().map(BuiltEvent::payload).collect(),
            headers: all().map(|it| it.headers.as_str()).collect(),
            created: all().map(|it| Moment(it.event.created_at)).collect(),
            available: all().map(|it| it.event.available_at.map(Moment)).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn params(&self) -> [&dyn Param; 10] {
        [
            &self.ids,
            &self.kinds,
            &self.tenants,
            &self.aggregates[0],
            &self.aggregates[1],
            &self.sequences,
            &self.payloads,
            &self.headers,
            &self.created,
            &self.available,
        ]
    }
}

/// The parameters of `outbox/emit_one`.
#[derive(Debug)]
pub(crate) struct One<'a> {
    id: String,
    kind: &'a str,
    tenant: Option<&'a str>,
    aggregate: [Option<&'a str>; 2],
    payload: &'a str,
    headers: &'a str,
    created: Moment,
    available: Option<Moment>,
    sequence: Option<i64>,
}

impl<'a> One<'a> {
    pub(crate) fn of(sealed: &'a BuiltEvent) -> Self {
        let event = &sealed.event;
        let about = event.aggregate.as_ref();
        Self {
            id: event.id.to_string(),
            kind: &event.kind,
            tenant: event.tenant.as_ref().map(Tenant::as_str),
            aggregate: [
                about.map(|it| it.kind.as_str()),
                about.map(|it| it.id.as_str()),
            ],
            payload: sealed.payload(),
            headers: &sealed.headers,
            created: Moment(event.created_at),
            available: event.available_at.map(Moment),
            sequence: event.sequence,
        }
    }

    pub(crate) fn params(&self) -> [&dyn Param; 10] {
        [
            &self.id,
            &self.kind,
            &self.tenant,
            &self.aggregate[0],
            &self.aggregate[1],
            &self.sequence,
            &self.payload,
            &self.headers,
            &self.created,
            &self.available,
        ]
    }
}
