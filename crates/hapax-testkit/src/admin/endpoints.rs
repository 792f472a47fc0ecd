//! Conformance tests of endpoints: what operators and tenants do with them.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    admin::{
        Actor, EndpointAction, EndpointDeliveryFilter, EndpointEdit, EndpointFilter,
        EndpointReplay, NewEndpoint, StoredEndpoint, TenantEndpoint,
    },
    endpoint::{EndpointState, EndpointStore as _},
    limits::{ENDPOINT_DELETED, ENDPOINTS_PER_TENANT},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid, check_missing, hostile, pages},
    scene::{HOUR, Scene, line, of},
};

/// An endpoint reads back as it was created, and a change needs its version.
pub async fn an_endpoint_is_changed_at_its_version<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let new = NewEndpoint {
        id: "ep_1".to_owned(),
        edit: EndpointEdit {
            url: "https://a.example/hooks?b=c".to_owned(),
            description: "orders".to_owned(),
            types: vec!["order.*".to_owned()],
            filter: Some(r#"{"/amount": {"$gte": 100}}"#.to_owned()),
            headers: vec!["x-api-key".to_owned()],
            mapping: Some(r#"{"n": "$.data.n"}"#.to_owned()),
            sealed: Some(vec![1, 2, 3]),
            ..EndpointEdit::default()
        },
    };
    let created = admin.create_endpoint(ops, "acme", &new, 50).await.must();
    let read = read(&scene, "acme", "ep_1").await;
    assert_eq!(read.endpoint, created);
    assert_eq!(read.edit(), new.edit);
    assert_eq!((created.enabled, created.failures), (true, 0));
    assert_eq!(created.created_at, scene.now());
    scene.advance(HOUR).await;
    let edit = EndpointEdit {
        types: Vec::new(),
        sealed: Some(vec![4]),
        previous_until: Some(scene.now()),
        ..new.edit.clone()
    };
    let changed = change(&scene, &created, EndpointAction::Rotate, &edit).await;
    assert_eq!(changed.types, ["*"]);
    assert_eq!(changed.previous_secret_until, Some(scene.now()));
    assert_eq!(
        (changed.created_at, changed.changed_at),
        (created.created_at, scene.now())
    );
    assert!(changed.version > created.version);
    let late = admin.change_endpoint(
        ops,
        "acme",
        "ep_1",
        created.version,
        EndpointAction::Change,
        &edit,
    );
    check_conflict(&late.await);
    let bad = EndpointEdit {
        filter: Some("{".to_owned()),
        ..edit.clone()
    };
    let version = changed.version;
    let action = EndpointAction::Change;
    let refused = admin.change_endpoint(ops, "acme", "ep_1", version, action, &bad);
    check_invalid(&refused.await, "filter");
    let bad = EndpointEdit {
        mapping: Some("{".to_owned()),
        ..edit
    };
    let refused = admin.change_endpoint(ops, "acme", "ep_1", version, action, &bad);
    check_invalid(&refused.await, "mapping");
    assert_eq!(
        scene.acts().await,
        [line("create", "done"), line("rotate", "done")]
    );
}

/// A tenant has at most as many endpoints as the limit says, however many are created at once. A
/// deleted one makes room.
pub async fn a_tenant_has_a_bounded_number_of_endpoints<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let beside = scene.beside().await;
    let create = |number: usize| {
        let admin = if number.is_multiple_of(2) {
            admin
        } else {
            &beside
        };
        async move {
            let new = endpoint(&format!("ep_{number}"));
            admin.create_endpoint(ops, "acme", &new, 3).await
        }
    };
    let all = join_all((0..8).map(create)).await;
    assert_eq!(all.iter().filter(|it| it.is_ok()).count(), 3, "{all:?}");
    all.iter().filter(|it| it.is_err()).for_each(check_conflict);
    let new = endpoint("ep_other");
    admin.create_endpoint(ops, "other", &new, 3).await.must();
    let own = list(&scene, ops, Some("acme")).await;
    let deleted = admin.delete_endpoint(ops, "acme", &own[0].id);
    deleted.await.must();
    let new = endpoint("ep_again");
    admin.create_endpoint(ops, "acme", &new, 3).await.must();
}

/// Endpoints are listed by id, those of one tenant or of all, and without those that were deleted.
pub async fn endpoints_are_listed_in_pages<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let ops = &scene.ops;
    for (id, tenant) in [("ep_b", "acme"), ("ep_a", "acme"), ("ep_c", "other")] {
        create(&scene, tenant, id).await;
    }
    let ids = async |actor: &Actor, tenant: Option<&str>| {
        let listed = list(&scene, actor, tenant).await.into_iter();
        listed.map(|it| it.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(ops, None).await, ["ep_a", "ep_b", "ep_c"]);
    assert_eq!(ids(ops, Some("acme")).await, ["ep_a", "ep_b"]);
    assert_eq!(ids(&of("other"), None).await, ["ep_c"]);
    let deleted = scene.admin.delete_endpoint(ops, "acme", "ep_a");
    deleted.await.must();
    assert_eq!(ids(ops, None).await, ["ep_b", "ep_c"]);
    check_missing(&scene.admin.delete_endpoint(ops, "acme", "ep_a").await);
    check_missing(&scene.admin.endpoint(ops, "acme", "ep_a").await);
}

/// Neither with the name of another tenant nor as its operator is an endpoint found, by any method.
pub async fn an_endpoint_belongs_to_its_tenant_alone<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let own = create(&scene, "acme", "ep_1").await;
    let replay = EndpointReplay::FailedSince(scene.now());
    for (actor, tenant) in [
        (ops.clone(), "other"),
        (of("other"), "acme"),
        (of("other"), "other"),
    ] {
        check_missing(&admin.endpoint(&actor, tenant, "ep_1").await);
        let edit = endpoint("ep_1").edit;
        let action = EndpointAction::Change;
        let version = own.version;
        let changed = admin.change_endpoint(&actor, tenant, "ep_1", version, action, &edit);
        check_missing(&changed.await);
        check_missing(&admin.delete_endpoint(&actor, tenant, "ep_1").await);
        let filter = EndpointDeliveryFilter::default();
        let listed = admin.endpoint_deliveries(&actor, tenant, "ep_1", &filter, None, 10);
        check_missing(&listed.await);
        let health = admin.endpoint_health(&actor, tenant, "ep_1", scene.now());
        check_missing(&health.await);
        check_missing(&admin.replay_endpoint(&actor, tenant, "ep_1", &replay).await);
    }
    let foreign = of("other");
    let new = endpoint("ep_2");
    check_missing(&admin.create_endpoint(&foreign, "acme", &new, 50).await);
    let filter = of_tenant(Some("acme"));
    check_missing(&admin.endpoints(&foreign, &filter, None, 10).await);
    for tenant in ["a\nb", "a\0b", "\u{1b}[31m"] {
        let refused = admin.create_endpoint(ops, tenant, &new, 50);
        check_invalid(&refused.await, "tenant");
    }
    for word in hostile() {
        check_missing(&admin.endpoint(ops, "acme", &word).await);
        check_missing(&admin.delete_endpoint(ops, "acme", &word).await);
    }
    assert_eq!(read(&scene, "acme", "ep_1").await.endpoint, own);
}

/// A relay reads each change after a version, once. A deleted endpoint is a change, until its row is
/// purged.
pub async fn a_relay_reads_what_has_changed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops, store) = (&scene.admin, &scene.ops, scene.store());
    let one = create(&scene, "acme", "ep_1").await;
    let two = create(&scene, "other", "ep_2").await;
    let changes = store.endpoint_changes(0, 100).await.must();
    let versions: Vec<_> = changes.iter().map(|it| it.version).collect();
    assert_eq!(versions, [one.version, two.version]);
    let EndpointState::Present(read) = &changes[0].state else {
        panic!("{:?}", changes[0]);
    };
    assert_eq!((read.id.as_str(), read.is_enabled), ("ep_1", true));
    assert_eq!(read.tenant.as_str(), "acme");
    let first = store.endpoint_changes(0, 1).await.must();
    assert_eq!(first.len(), 1);
    let edit = EndpointEdit {
        disabled_reason: Some("by hand".to_owned()),
        ..endpoint("ep_1").edit
    };
    let disabled = change(&scene, &one, EndpointAction::Disable, &edit).await;
    assert_eq!(disabled.disabled_at, Some(scene.now()));
    let changes = store.endpoint_changes(two.version, 100).await.must();
    let EndpointState::Present(read) = &changes[0].state else {
        panic!("{:?}", changes[0]);
    };
    assert!(!read.is_enabled && changes.len() == 1);
    admin.delete_endpoint(ops, "other", "ep_2").await.must();
    let changes = store.endpoint_changes(disabled.version, 100).await.must();
    assert!(
        matches!(changes[0].state, EndpointState::Deleted),
        "{changes:?}"
    );
    let last = changes[0].version;
    assert!(store.endpoint_changes(last, 100).await.must().is_empty());
    scene.advance(ENDPOINT_DELETED + HOUR).await;
    let purged = store.purge_endpoints(Duration::from_hours(24 * 365)).await;
    assert_eq!(purged.must(), 1);
    assert!(
        store
            .endpoint_changes(last - 1, 100)
            .await
            .must()
            .is_empty()
    );
}

/// An endpoint to be created.
pub(super) fn endpoint(id: &str) -> NewEndpoint {
    NewEndpoint {
        id: id.to_owned(),
        edit: EndpointEdit {
            url: format!("https://{}.example/", id.replace('_', "-")),
            ..EndpointEdit::default()
        },
    }
}

/// Creates an endpoint that takes every event of a tenant.
pub(super) async fn create<S: AdminUnderTest>(
    scene: &Scene<S>,
    tenant: &str,
    id: &str,
) -> TenantEndpoint {
    let (admin, new) = (&scene.admin, endpoint(id));
    let created = admin.create_endpoint(&scene.ops, tenant, &new, ENDPOINTS_PER_TENANT);
    created.await.must()
}

/// Reads an endpoint.
pub(super) async fn read<S: AdminUnderTest>(
    scene: &Scene<S>,
    tenant: &str,
    id: &str,
) -> StoredEndpoint {
    scene.admin.endpoint(&scene.ops, tenant, id).await.must()
}

/// Changes an endpoint.
pub(super) async fn change<S: AdminUnderTest>(
    scene: &Scene<S>,
    from: &TenantEndpoint,
    action: EndpointAction,
    edit: &EndpointEdit,
) -> TenantEndpoint {
    let TenantEndpoint {
        id,
        tenant,
        version,
        ..
    } = from;
    let admin = &scene.admin;
    let changed = admin.change_endpoint(&scene.ops, tenant, id, *version, action, edit);
    changed.await.must()
}

async fn list<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    tenant: Option<&str>,
) -> Vec<TenantEndpoint> {
    list_filtered(scene, actor, &of_tenant(tenant)).await
}

/// Lists the endpoints of a filter, in pages of two.
pub(super) async fn list_filtered<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    filter: &EndpointFilter,
) -> Vec<TenantEndpoint> {
    pages(2, async |after: Option<String>| {
        let after = after.as_deref();
        scene.admin.endpoints(actor, filter, after, 2).await
    })
    .await
}

fn of_tenant(tenant: Option<&str>) -> EndpointFilter {
    EndpointFilter {
        tenant: tenant.map(str::to_owned),
        ..EndpointFilter::default()
    }
}
