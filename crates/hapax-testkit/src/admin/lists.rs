//! Conformance tests of what all lists have in common: pages, limits and cursors.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    admin::{
        AdminError, AuditFilter, DeliveryFilter, EventFilter, JobFilter, JobOptions, KeyFilter,
        MessageFilter, PAGE_MAX, Page,
    },
    delivery::ParkedState,
    saga::Filter,
    store::{ClaimOutcome, KeyMaintenance, Keys},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_invalid, hostile, pages, pages_from},
    inbox::accept,
    scene::{HOUR, OPERATION, Scene, new_saga, park},
};
use crate::events::{claim_of, scope, single_shot};

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Events,
    Deliveries,
    Jobs,
    Keys,
    Messages,
    Audit,
    Sagas,
    Declarations,
}

impl List {
    const ALL: [Self; 8] = [
        Self::Events,
        Self::Deliveries,
        Self::Jobs,
        Self::Keys,
        Self::Messages,
        Self::Audit,
        Self::Sagas,
        Self::Declarations,
    ];

    /// Whether it is in the order of names, and a cursor is a name.
    fn is_by_name(self) -> bool {
        matches!(self, Self::Sagas | Self::Declarations)
    }

    /// Adds `count` items. The names of items that are added later are mixed among the earlier ones.
    async fn add<S: AdminUnderTest>(self, scene: &Scene<S>, count: usize, round: usize) {
        let (admin, ops) = (&scene.admin, &scene.ops);
        let name = |number: usize| format!("n{number:04}-{round}");
        match self {
            Self::Events => drop(scene.emit("order.created", None, count).await),
            Self::Deliveries => {
                let at = scene.emit("order.created", None, count).await;
                let parks = at.iter().map(|it| park(*it, ParkedState::Retrying, None));
                scene.settle("a", parks.collect()).await;
            }
            Self::Jobs => {
                let (all, options) = (EventFilter::default(), JobOptions::default());
                scene.pass("a", &[]).await;
                for _ in 0..count {
                    let job = admin.start_dead_letter_job(ops, "a", &all, None, &options);
                    job.await.must();
                }
            }
            Self::Keys => {
                let keys = (0..count).map(async |number: usize| {
                    let claim = claim_of(scope("a", OPERATION, &name(number)));
                    let plan = single_shot(claim, Vec::new(), "{}");
                    let ran = scene.store().execute_plan(plan).await.must();
                    assert!(matches!(ran, ClaimOutcome::Open(_)));
                });
                join_all(keys).await;
            }
            Self::Messages => {
                let ids: Vec<String> = (0..count).map(name).collect();
                let messages = ids.iter().map(|id| ("mailer", "shop", id.as_str()));
                accept(scene, &messages.collect::<Vec<_>>()).await;
            }
            Self::Audit => {
                scene.pass("a", &[]).await;
                for _ in 0..count {
                    admin.pause_destination(ops, "a").await.must();
                }
            }
            Self::Sagas => {
                let sagas = (0..count).map(|number| new_saga(&name(number), None));
                scene.start_sagas(sagas).await;
            }
            Self::Declarations => {
                for number in 0..count {
                    let name = name(number);
                    let created = admin.create_destination(ops, &name, "{}", None);
                    created.await.must();
                }
            }
        }
    }

    /// A page of the list, as the names of its items.
    async fn page<S: AdminUnderTest>(
        self,
        scene: &Scene<S>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<String>, AdminError> {
        let (admin, ops) = (&scene.admin, &scene.ops);
        Ok(match self {
            Self::Events => {
                let all = EventFilter::default();
                let page = admin.events(ops, &all, cursor, limit).await?;
                named(page, |it| it.position.to_string())
            }
            Self::Deliveries => {
                let all = DeliveryFilter::default();
                let page = admin.deliveries(ops, &all, cursor, limit).await?;
                named(page, |it| format!("{} {}", it.partition, it.position))
            }
            Self::Jobs => {
                let all = JobFilter::default();
                let page = admin.jobs(ops, &all, cursor, limit).await?;
                named(page, |it| it.id.to_string())
            }
            Self::Keys => {
                let all = KeyFilter::default();
                let page = admin.keys(ops, &all, cursor, limit).await?;
                named(page, |it| it.key)
            }
            Self::Messages => {
                let all = MessageFilter::default();
                let page = admin.messages(ops, &all, cursor, limit).await?;
                named(page, |it| it.message_id)
            }
            Self::Audit => {
                let all = AuditFilter::default();
                let page = admin.audit_log(ops, &all, cursor, limit).await?;
                named(page, |it| it.id.to_string())
            }
            Self::Sagas => {
                let filter = Filter {
                    after: cursor.map(str::to_owned),
                    ..Filter::default()
                };
                let page = admin.list_sagas(ops, &filter, limit).await?;
                named(page, |it| it.saga.id)
            }
            Self::Declarations => {
                let page = admin.declarations(ops, cursor, limit).await?;
                named(page, |it| it.name)
            }
        })
    }

    /// All items after a cursor.
    async fn rest<S: AdminUnderTest>(
        self,
        scene: &Scene<S>,
        cursor: Option<String>,
        limit: usize,
    ) -> Vec<String> {
        pages_from(cursor, limit, async |cursor: Option<String>| {
            self.page(scene, cursor.as_deref(), limit).await
        })
        .await
    }
}

fn named<T>(page: Page<T>, name: impl Fn(T) -> String) -> Page<String> {
    Page {
        items: page.items.into_iter().map(name).collect(),
        next: page.next,
    }
}

/// Whatever the length of its pages, a list contains each item once, in one order.
pub async fn every_list_has_each_item_once_whatever_the_length_of_its_pages<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for list in List::ALL {
        list.add(&scene, 7, 0).await;
        let all = list.rest(&scene, None, PAGE_MAX).await;
        assert!(all.len() >= 7, "{list:?}: {all:?}");
        for limit in [1, 2, all.len() - 1, all.len(), all.len() + 1] {
            assert_eq!(
                list.rest(&scene, None, limit).await,
                all,
                "{list:?}, {limit}"
            );
        }
    }
}

/// A limit of 0 is one of 1, and a limit above [`PAGE_MAX`] is one of [`PAGE_MAX`].
pub async fn a_limit_is_at_least_one_and_at_most_the_maximum<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for list in List::ALL {
        list.add(&scene, 3, 0).await;
        let all = list.rest(&scene, None, PAGE_MAX).await;
        let first = list.page(&scene, None, 0).await.must();
        assert_eq!(first.items, all[..1], "{list:?}");
        assert_eq!(list.rest(&scene, None, 0).await, all, "{list:?}");
        for limit in [PAGE_MAX + 1, usize::MAX] {
            let page = list.page(&scene, None, limit).await.must();
            assert_eq!(page.items, all, "{list:?}");
        }
    }
}

/// A page of events or deliveries has at most [`PAGE_MAX`] items, and the next one has the rest.
pub async fn a_page_of_events_has_at_most_the_maximum_of_items<S: AdminUnderTest>() {
    check_maximum::<S>(List::Events).await;
    check_maximum::<S>(List::Deliveries).await;
}

/// The same of a page of keys.
pub async fn a_page_of_keys_has_at_most_the_maximum_of_items<S: AdminUnderTest>() {
    check_maximum::<S>(List::Keys).await;
}

/// The same of a page of messages.
pub async fn a_page_of_messages_has_at_most_the_maximum_of_items<S: AdminUnderTest>() {
    check_maximum::<S>(List::Messages).await;
}

/// The same of a page of sagas.
pub async fn a_page_of_sagas_has_at_most_the_maximum_of_items<S: AdminUnderTest>() {
    check_maximum::<S>(List::Sagas).await;
}

async fn check_maximum<S: AdminUnderTest>(list: List) {
    let scene = Scene::<S>::new().await;
    list.add(&scene, PAGE_MAX + 1, 0).await;
    let page = list.page(&scene, None, usize::MAX).await.must();
    assert_eq!(page.items.len(), PAGE_MAX, "{list:?}");
    let next = page.next.expect("there is one more");
    let page = list.page(&scene, Some(&next), usize::MAX).await.must();
    assert_eq!(page.items.len(), 1, "{list:?}");
}

/// Items that are added between two pages do not make the list repeat or omit any other.
pub async fn a_cursor_survives_what_is_added_between_pages<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for list in List::ALL {
        list.add(&scene, 8, 0).await;
        let before = list.rest(&scene, None, PAGE_MAX).await;
        let page = list.page(&scene, None, 3).await.must();
        let (mut seen, mut cursor) = (page.items, page.next);
        for round in 1..100 {
            scene.advance(Duration::from_secs(1)).await;
            list.add(&scene, 2, round).await;
            let page = list.page(&scene, cursor.as_deref(), 3).await.must();
            seen.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(cursor, None, "{list:?}");
        if !list.is_by_name() {
            assert_eq!(seen, before, "{list:?}: newer items are on no later page");
            continue;
        }
        let old: Vec<_> = seen.iter().filter(|it| before.contains(it)).collect();
        assert_eq!(old, before.iter().collect::<Vec<_>>(), "{list:?}");
        assert!(
            seen.is_sorted_by(|one, next| one < next),
            "{list:?}: {seen:?}"
        );
    }
}

/// The item at a cursor may be deleted.
pub async fn a_cursor_survives_the_deletion_of_its_item<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    List::Keys.add(&scene, 8, 0).await;
    let all = List::Keys.rest(&scene, None, PAGE_MAX).await;
    let page = List::Keys.page(&scene, None, 3).await.must();
    for key in &all[2..4] {
        let forgotten = scene.store().forget(&scope("a", OPERATION, key)).await;
        assert!(forgotten.must());
    }
    let rest = List::Keys.rest(&scene, page.next, 3).await;
    assert_eq!(rest, all[4..]);
    List::Declarations.add(&scene, 8, 0).await;
    let all = List::Declarations.rest(&scene, None, PAGE_MAX).await;
    let page = List::Declarations.page(&scene, None, 3).await.must();
    for name in &all[2..4] {
        let removed = scene.admin.remove_destination(&scene.ops, name).await;
        removed.must();
    }
    scene.advance(HOUR).await;
    scene.work().await;
    let rest = List::Declarations.rest(&scene, page.next, 3).await;
    assert_eq!(rest, all[4..]);
}

/// A cursor is valid in another process.
pub async fn a_cursor_is_valid_in_another_process<S: AdminUnderTest>() {
    let mut scene = Scene::<S>::new().await;
    for list in List::ALL {
        list.add(&scene, 6, 0).await;
        let all = list.rest(&scene, None, PAGE_MAX).await;
        let page = list.page(&scene, None, 2).await.must();
        scene.admin = scene.beside().await;
        assert_eq!(list.rest(&scene, page.next, 2).await, all[2..], "{list:?}");
    }
}

/// Text that is not a cursor is rejected; where a cursor is a name, every text is one.
pub async fn text_that_is_not_a_cursor_is_rejected<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut words = hostile();
    let others = ["", " ", "x", "next", "1 2", "-", "null", "\u{661}"];
    words.extend(others.map(str::to_owned));
    words.push("9".repeat(64 * 1024));
    for list in List::ALL {
        list.add(&scene, 3, 0).await;
        let all = list.rest(&scene, None, PAGE_MAX).await;
        for word in &words {
            let page = list.page(&scene, Some(word), 10).await;
            if list.is_by_name() {
                // The order of names depends on the database.
                assert!(all.ends_with(&page.must().items), "{list:?}");
            } else {
                check_invalid(&page, "before");
            }
        }
    }
}

/// A cursor of one list is not one of another, or harmless there.
pub async fn a_cursor_of_another_list_does_no_harm<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut cursors = Vec::new();
    for list in List::ALL {
        list.add(&scene, 3, 0).await;
        cursors.extend(list.page(&scene, None, 1).await.must().next);
    }
    assert_eq!(cursors.len(), List::ALL.len());
    for list in List::ALL {
        for cursor in &cursors {
            let page = list.page(&scene, Some(cursor), 1).await;
            if let Err(AdminError::Store(error)) = page {
                panic!("{list:?} at {cursor}: {error:?}");
            }
        }
        let all = pages(2, async |cursor: Option<String>| {
            list.page(&scene, cursor.as_deref(), 2).await
        });
        assert!(all.await.len() >= 3, "{list:?}");
    }
}
