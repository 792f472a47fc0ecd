//! Conformance tests of polling endpoints: what a consumer receives.

use std::{num::NonZeroU32, time::Duration};

use futures_util::future::join_all;
use hapax::{
    admin::{AdminError, NewPollingEndpoint},
    delivery::Start,
    event::{EventId, NewEvent},
    limits::{POLLING_EVENTS_MAX, POLLING_READ, POLLING_READS, POLLING_WAITING_EACH},
    notify::Notifier,
    poll::{
        Caller, CursorSecret, Page, PollError, PollRate, PollRequest, PollSettings, PollStore,
        Polling, Token,
    },
    store::Outbox,
};

use super::{
    AdminUnderTest,
    checks::{Must, hostile},
    scene::{HOUR, Scene, named},
};
use crate::{
    assert_matches,
    store::{StoreUnderTest, fixture::PATIENCE},
    wait::{Patience, eventually},
};

const DAY: Duration = Duration::from_hours(24);

/// The polling endpoints of a store under test.
pub(super) type PollingOf<S> = Polling<<S as StoreUnderTest>::Store>;

/// A consumer that follows the cursors receives every event of its tenant once and in order, for any
/// size of its pages, and no event of another tenant.
pub async fn a_chain_of_pages_has_each_event_of_the_tenant_once<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let token = create(&scene, "acme", Some("acme"), Start::Now).await;
    let mut expected = Vec::new();
    for round in 0..8 {
        for tenant in [Some("acme"), Some("other"), None, Some("acme")] {
            let ids = emit(&scene, tenant, "order.created", 1 + round % 3).await;
            if tenant == Some("acme") {
                expected.extend(ids);
            }
        }
    }
    let (polling, caller) = open(&scene, "acme", &token).await;
    for limit in [1, 3, POLLING_EVENTS_MAX] {
        let (received, _) = drain(&polling, &caller, None, limit).await;
        assert_eq!(received, expected, "limit {limit}");
    }
}

/// An endpoint receives the types that its patterns match; one of all tenants receives the events of
/// every tenant, and those without one.
pub async fn patterns_and_all_tenants_select_events<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut new = endpoint("orders", Some("acme"), Start::Now);
    new.1.types = vec!["order.*".to_owned(), "refund.created".to_owned()];
    let orders = create_as(&scene, new).await;
    let all = create(&scene, "all", None, Start::Now).await;
    let mut emitted = Vec::new();
    for (tenant, kind) in [
        (Some("acme"), "order.created"),
        (Some("acme"), "refund.failed"),
        (Some("other"), "order.created"),
        (None, "order.created"),
        (Some("acme"), "refund.created"),
    ] {
        emitted.extend(emit(&scene, tenant, kind, 1).await);
    }
    let (polling, caller) = open(&scene, "orders", &orders).await;
    let (received, _) = drain(&polling, &caller, None, 10).await;
    assert_eq!(received, [emitted[0], emitted[4]]);
    let (polling, caller) = open(&scene, "all", &all).await;
    let (received, _) = drain(&polling, &caller, None, 10).await;
    assert_eq!(received, emitted);
}

/// One event of a tenant among many of others is found in several bounded pages, each of which moves
/// the cursor, and the committed position if no cursor is given.
pub async fn a_rare_event_is_found_in_bounded_pages<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let token = create(&scene, "acme", Some("acme"), Start::Now).await;
    emit(&scene, Some("other"), "a", POLLING_READ * POLLING_READS).await;
    let rare = emit(&scene, Some("acme"), "a", 1).await;
    emit(&scene, Some("other"), "a", 3).await;
    let (polling, caller) = open(&scene, "acme", &token).await;
    let first = poll(&polling, &caller, None, 10).await;
    assert!(first.events.is_empty() && first.has_more);
    let (received, _) = drain(&polling, &caller, Some(first.cursor), 10).await;
    assert_eq!(received, rare);
    // A consumer that sends no cursor gets on too.
    let (_, caller) = open(&scene, "acme", &token).await;
    let (received, _) = drain(&polling, &caller, None, 10).await;
    assert_eq!(received, rare);
}

/// Without a commit the same events are returned again, and after it the next ones, also after a
/// restart.
pub async fn a_commit_survives_a_restart_and_a_fetch_does_not<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let token = create(&scene, "acme", Some("acme"), Start::Now).await;
    let ids = emit(&scene, Some("acme"), "a", 6).await;
    let (polling, caller) = open(&scene, "acme", &token).await;
    let fetched = poll(&polling, &caller, None, 2).await;
    assert_eq!(ids_of(&fetched), ids[..2]);
    let scene = restarted(scene).await;
    let (polling, caller) = open(&scene, "acme", &token).await;
    let again = poll(&polling, &caller, None, 2).await;
    assert_eq!(ids_of(&again), ids[..2]);
    polling.commit(&caller, &again.cursor, false).await.must();
    let scene = restarted(scene).await;
    let (polling, caller) = open(&scene, "acme", &token).await;
    assert_eq!(drain(&polling, &caller, None, 2).await.0, ids[2..]);
    // A cursor that was fetched before the restarts is as good as ever.
    let from = Some(fetched.cursor);
    assert_eq!(drain(&polling, &caller, from, 2).await.0, ids[2..]);
}

/// The committed position does not go back unless that is asked for. Of two consumers of one endpoint,
/// the one that is further ahead decides.
pub async fn a_commit_does_not_go_back_by_mistake<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let token = create(&scene, "acme", Some("acme"), Start::Now).await;
    let ids = emit(&scene, Some("acme"), "a", 4).await;
    let (polling, one) = open(&scene, "acme", &token).await;
    let (_, other) = open(&scene, "acme", &token).await;
    let behind = poll(&polling, &one, None, 1).await.cursor;
    let ahead = poll(&polling, &other, None, 3).await.cursor;
    polling.commit(&other, &ahead, false).await.must();
    polling.commit(&other, &ahead, false).await.must();
    let refused = polling.commit(&one, &behind, false).await;
    assert_matches!(refused, Err(PollError::Behind { .. }));
    let (_, caller) = open(&scene, "acme", &token).await;
    assert_eq!(drain(&polling, &caller, None, 10).await.0, ids[3..]);
    polling.commit(&one, &behind, true).await.must();
    let (_, caller) = open(&scene, "acme", &token).await;
    assert_eq!(drain(&polling, &caller, None, 10).await.0, ids[1..]);
}

/// A cursor that another endpoint has issued, that was changed, cut off or made up is refused, and
/// nothing of it reaches the database.
pub async fn a_cursor_of_another_endpoint_is_refused<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let token = create(&scene, "acme", Some("acme"), Start::Beginning).await;
    let other = create(&scene, "other", Some("other"), Start::Beginning).await;
    emit(&scene, Some("other"), "a", 3).await;
    let (polling, foreign) = open(&scene, "other", &other).await;
    let cursor = poll(&polling, &foreign, None, 1).await.cursor;
    let (_, caller) = open(&scene, "acme", &token).await;
    let own = poll(&polling, &caller, None, 1).await.cursor;
    let mut bad = hostile();
    bad.extend([
        cursor,
        own[1..].to_owned(),
        format!("{own}A"),
        own.to_uppercase(),
    ]);
    for text in &bad {
        let request = PollRequest {
            cursor: Some(text.as_str()),
            ..PollRequest::default()
        };
        let polled = polling.poll(&caller, request).await;
        assert!(matches!(polled, Err(PollError::Cursor(_))), "{text}");
        for seek in [false, true] {
            let committed = polling.commit(&caller, text, seek).await;
            assert!(matches!(committed, Err(PollError::Cursor(_))), "{text}");
        }
    }
    // Nor is it valid at an endpoint that was created again under its name.
    let removed = scene.admin.remove_polling_endpoint(&scene.ops, "acme");
    removed.await.must();
    let token = create(&scene, "acme", Some("acme"), Start::Now).await;
    let (_, caller) = open(&scene, "acme", &token).await;
    let committed = polling.commit(&caller, &own, true).await;
    assert_matches!(committed, Err(PollError::Cursor(_)));
}

/// A token opens its endpoint alone. An endpoint that does not exist gives the same answer as a token
/// that is not valid.
pub async fn a_token_opens_its_endpoint_alone<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let acme = create(&scene, "acme", Some("acme"), Start::Now).await;
    let other = create(&scene, "other", Some("other"), Start::Now).await;
    let polling = polling(&scene);
    let refused = async |name: &str, token: &str| {
        let opened = polling.authenticate(name, token.as_bytes()).await;
        assert!(
            matches!(opened, Err(PollError::Unauthorized)),
            "{name} {token}"
        );
    };
    open(&scene, "acme", &acme).await;
    for token in [other.reveal(), Token::mint([9; 32]).reveal(), "", "hxp_"] {
        refused("acme", token).await;
        refused("nowhere", token).await;
    }
    for name in hostile() {
        refused(&name, acme.reveal()).await;
    }
}

/// An endpoint starts where it was asked to, and a seek moves it in the same ways.
pub async fn an_endpoint_starts_and_seeks_as_it_is_asked<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut ids = emit(&scene, Some("acme"), "a", 2).await;
    scene.advance(HOUR).await;
    let time = scene.now();
    ids.extend(emit(&scene, Some("acme"), "a", 1).await);
    let starts = [(Start::Now, 3), (Start::Beginning, 0), (Start::At(time), 2)];
    let names = ["now", "beginning", "since"];
    let mut tokens = Vec::new();
    for (name, (start, _)) in names.into_iter().zip(starts) {
        tokens.push(create(&scene, name, Some("acme"), start).await);
    }
    ids.extend(emit(&scene, Some("acme"), "a", 2).await);
    for ((name, token), (_, skipped)) in names.into_iter().zip(&tokens).zip(starts) {
        let (polling, caller) = open(&scene, name, token).await;
        let (received, _) = drain(&polling, &caller, None, 10).await;
        assert_eq!(received, ids[skipped..], "{name}");
    }
    let (polling, caller) = open(&scene, "now", &tokens[0]).await;
    for (start, skipped) in [(Start::Now, 5), (Start::Beginning, 0), (Start::At(time), 2)] {
        let cursor = polling.seek(&caller, start).await.must();
        let (received, _) = drain(&polling, &caller, Some(cursor), 10).await;
        assert_eq!(received, ids[skipped..], "{start}");
        let (_, again) = open(&scene, "now", &tokens[0]).await;
        let (received, _) = drain(&polling, &again, None, 10).await;
        assert_eq!(received, ids[skipped..], "{start}, committed");
    }
}

/// A consumer whose cursor is before what retention has purged learns that, and with which cursor to
/// continue. Retention does not wait for consumers, and purges although there is no destination.
pub async fn a_consumer_learns_what_was_purged<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let token = create(&scene, "acme", Some("acme"), Start::Beginning).await;
    let ids = emit(&scene, Some("acme"), "a", 5).await;
    let (polling, caller) = open(&scene, "acme", &token).await;
    let cursor = poll(&polling, &caller, None, 1).await.cursor;
    purge_old(&scene).await;
    let continued = match poll_from(&polling, &caller, Some(cursor.as_str()), 10).await {
        Err(PollError::Gone {
            is_set_back: false,
            cursor,
            ..
        }) => cursor,
        other => panic!("events were purged: {other:?}"),
    };
    let (_, caller) = open(&scene, "acme", &token).await;
    let committed = poll_from(&polling, &caller, None, 10).await;
    assert_matches!(committed, Err(PollError::Gone { .. }));
    let later = emit(&scene, Some("acme"), "a", 2).await;
    let (received, end) = drain(&polling, &caller, Some(continued), 10).await;
    assert!(
        received.ends_with(&later),
        "an event that is kept was skipped"
    );
    assert!(
        received
            .iter()
            .all(|id| ids.contains(id) || later.contains(id))
    );
    polling.commit(&caller, &end, false).await.must();
    let (_, caller) = open(&scene, "acme", &token).await;
    assert!(drain(&polling, &caller, None, 10).await.0.is_empty());
    // A new endpoint that starts at the beginning misses nothing of what is kept.
    let fresh = create(&scene, "fresh", Some("acme"), Start::Beginning).await;
    let (polling, caller) = open(&scene, "fresh", &fresh).await;
    assert_eq!(drain(&polling, &caller, None, 10).await.0, received);
}

/// After a backup was restored, a cursor of the lost part is refused, with the committed cursor of the
/// backup, from which every event of the new history is received.
pub async fn a_cursor_of_a_lost_history_is_refused<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let token = create(&scene, "acme", Some("acme"), Start::Now).await;
    emit(&scene, Some("acme"), "a", 2).await;
    let (polling, caller) = open(&scene, "acme", &token).await;
    let kept = poll(&polling, &caller, None, 10).await.cursor;
    polling.commit(&caller, &kept, false).await.must();
    scene.fixture.keep_image().await;
    emit(&scene, Some("acme"), "a", 2).await;
    let lost = poll(&polling, &caller, Some(kept.clone()), 10).await.cursor;
    scene.fixture.set_back().await;
    let (polling, caller) = open(&scene, "acme", &token).await;
    let polled = poll_from(&polling, &caller, Some(lost.as_str()), 10).await;
    let Err(PollError::Gone {
        is_set_back: true,
        cursor: continued,
        ..
    }) = polled
    else {
        panic!("the cursor was lost: {polled:?}");
    };
    for seek in [false, true] {
        let committed = polling.commit(&caller, &lost, seek).await;
        assert_matches!(
            committed,
            Err(PollError::Gone {
                is_set_back: true,
                ..
            })
        );
    }
    let anew = emit(&scene, Some("acme"), "a", 3).await;
    assert_eq!(drain(&polling, &caller, Some(continued), 10).await.0, anew);
    let (_, caller) = open(&scene, "acme", &token).await;
    assert_eq!(drain(&polling, &caller, None, 10).await.0, anew);
}

/// A poll that waits ends with an event that is committed meanwhile, and the number of polls that wait
/// at one endpoint is bounded.
pub async fn a_poll_waits_for_an_event<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let token = create(&scene, "acme", Some("acme"), Start::Now).await;
    let (polling, caller) = open(&scene, "acme", &token).await;
    let wait = |seconds| PollRequest {
        wait: Duration::from_secs(seconds),
        ..PollRequest::default()
    };
    let waiting = (0..POLLING_WAITING_EACH).map(|_| {
        let (polling, caller) = (polling.clone(), caller.clone());
        tokio::spawn(async move {
            let patience = Patience::within(PATIENCE);
            loop {
                // The poll that finds no place holds one itself until there are as many as possible.
                match polling.poll(&caller, wait(30)).await {
                    Err(PollError::TooManyWaiting) => patience.pause().await,
                    answer => return answer,
                }
            }
        })
    });
    let waiting: Vec<_> = waiting.collect();
    eventually(PATIENCE, async || {
        let one_more = polling.poll(&caller, wait(1)).await;
        matches!(one_more, Err(PollError::TooManyWaiting))
    })
    .await;
    emit(&scene, Some("other"), "a", 1).await;
    let ids = emit(&scene, Some("acme"), "a", 1).await;
    for page in join_all(waiting).await {
        assert_eq!(ids_of(&page.must().must()), ids);
    }
    polling.close();
    let (_, caller) = open(&scene, "acme", &token).await;
    polling.seek(&caller, Start::Now).await.must();
    let (_, caller) = open(&scene, "acme", &token).await;
    let closed = polling.poll(&caller, wait(30)).await.must();
    assert!(
        closed.events.is_empty(),
        "a poll of a stopping process ends at once"
    );
}

/// A token, and the endpoint that it opens.
pub(super) fn endpoint(
    name: &str,
    tenant: Option<&str>,
    start: Start,
) -> (Token, NewPollingEndpoint) {
    // Different for each endpoint, and for each that is created again elsewhere.
    let mut seed = [0; 32];
    for (place, byte) in seed
        .iter_mut()
        .zip(name.bytes().chain(start.to_string().bytes()))
    {
        *place = byte;
    }
    let token = Token::mint(seed);
    let new = NewPollingEndpoint {
        name: name.to_owned(),
        tenant: tenant.map(str::to_owned),
        all_tenants: tenant.is_none(),
        types: Vec::new(),
        start,
        token: token.hash(),
        secret: CursorSecret::from_bytes(seed),
    };
    (token, new)
}

pub(super) async fn create<S: AdminUnderTest>(
    scene: &Scene<S>,
    name: &str,
    tenant: Option<&str>,
    start: Start,
) -> Token {
    create_as(scene, endpoint(name, tenant, start)).await
}

async fn create_as<S: AdminUnderTest>(
    scene: &Scene<S>,
    (token, new): (Token, NewPollingEndpoint),
) -> Token {
    let created: Result<_, AdminError> =
        scene.admin.create_polling_endpoint(&scene.ops, &new).await;
    created.must();
    token
}

pub(super) fn polling<S: AdminUnderTest>(scene: &Scene<S>) -> PollingOf<S> {
    let settings = PollSettings {
        rate: PollRate {
            per_second: NonZeroU32::MAX,
            burst: NonZeroU32::MAX,
        },
        ..PollSettings::default()
    };
    let clock = scene.fixture.clock.clock();
    Polling::new(scene.store().clone(), &Notifier::new(), clock, &settings)
}

/// A process that serves the endpoints, and a consumer with a token.
async fn open<S: AdminUnderTest>(
    scene: &Scene<S>,
    name: &str,
    token: &Token,
) -> (PollingOf<S>, Caller) {
    let polling = polling(scene);
    let caller = polling.authenticate(name, token.reveal().as_bytes());
    let caller = caller.await.must();
    (polling, caller)
}

/// The same scene after a restart of the store.
async fn restarted<S: AdminUnderTest>(scene: Scene<S>) -> Scene<S> {
    let Scene {
        fixture,
        admin,
        ops,
    } = scene;
    drop(admin);
    let fixture = fixture.reopen().await;
    let admin = fixture.under_test().admin();
    Scene {
        fixture,
        admin,
        ops,
    }
}

async fn poll_from<P: PollStore>(
    polling: &Polling<P>,
    caller: &Caller,
    cursor: Option<&str>,
    limit: usize,
) -> Result<Page, PollError> {
    let request = PollRequest {
        cursor,
        limit,
        ..PollRequest::default()
    };
    polling.poll(caller, request).await
}

async fn poll<P: PollStore>(
    polling: &Polling<P>,
    caller: &Caller,
    cursor: Option<String>,
    limit: usize,
) -> Page {
    let polled = poll_from(polling, caller, cursor.as_deref(), limit);
    polled.await.must()
}

/// Reads page after page. Returns the events, and the last cursor.
async fn drain<P: PollStore>(
    polling: &Polling<P>,
    caller: &Caller,
    cursor: Option<String>,
    limit: usize,
) -> (Vec<EventId>, String) {
    let mut page = poll(polling, caller, cursor, limit).await;
    let mut ids = ids_of(&page);
    for _ in 0..10_000 {
        if !page.has_more {
            return (ids, page.cursor);
        }
        page = poll(polling, caller, Some(page.cursor), limit).await;
        assert!(page.events.len() <= limit, "a page is longer than {limit}");
        ids.extend(ids_of(&page));
    }
    panic!("the pages do not end");
}

fn ids_of(page: &Page) -> Vec<EventId> {
    page.events.iter().map(|event| event.event.id).collect()
}

/// Commits events of one tenant in one transaction.
async fn emit<S: AdminUnderTest>(
    scene: &Scene<S>,
    tenant: Option<&str>,
    kind: &str,
    count: usize,
) -> Vec<EventId> {
    let event = |number: usize| {
        let event = NewEvent::json(kind, &number).about("order", (number % 5).to_string());
        match tenant {
            Some(tenant) => event.tenant(named(tenant)),
            None => event,
        }
    };
    scene.fixture.emit((0..count).map(event).collect()).await
}

/// Purges until there is nothing to purge, now and some days later, as in the tests of the outbox.
async fn purge_old<S: AdminUnderTest>(scene: &Scene<S>) {
    for _ in 0..3 {
        while scene.store().purge_events(DAY, Duration::MAX).await.must() > 0 {}
        scene.advance(DAY * 2).await;
    }
}
