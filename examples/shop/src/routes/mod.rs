//! The routes, one file per noun, and their layers.
//!
//! A request passes these layers in order: request id, authentication, rate limit, idempotency key,
//! handler.
//! Routes without a tenant (health, metrics, received webhooks, the demo) skip authentication and
//! keys. All error responses are problems, including those of the router.

mod ledger;
pub(crate) mod demo;
mod checkouts;
mod customers;
mod health;
mod orders;
mod payments;
mod refunds;
mod provider;
mod signups;
mod uploads;
mod webhooks;
mod openapi;

pub(crate) use health::Probe;
use provider::{failed, provided, refused, unknown};

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    handler::Handler,
    response::Response,
    routing::{MethodFilter, MethodRouter, get, on, post},
};
use hapax::failpoint::Failpoints;
use hapax::{
    Random, key::Tenant, limits::BODY_BYTES_MAX, request_log::RequestLog, signature::Verifier,
    trace::Traces,
};
use hapax_http::{
    DedupeKey, Idempotency, InTransaction, OperationLayer, Rate, RateLimit, RequestIds, problem,
};
use http::{HeaderValue, Method, header};
use metrics_exporter_prometheus::PrometheusHandle;

use crate::{
    auth::Tokens,
    config::Claims,
    database::Database,
    ids::Ids,
    providers::Providers,
    relay_handle::RelayStatus,
    uploads::{Folder, UPLOAD_BYTES_MAX},
};

/// The state shared by all handlers.
#[derive(Debug)]
pub(crate) struct Shop<D> {
    pub(crate) store: D,
    pub(crate) ids: Ids,
    pub(crate) providers: Providers,
    pub(crate) failpoints: Failpoints,
    pub(crate) uploads: Folder,
    /// The tenant whose ledger records webhooks about unknown charges.
    pub(crate) inbox_tenant: Tenant,
    /// The tracing of received messages.
    pub(crate) traces: Traces,
    /// Which received messages are logged.
    pub(crate) requests: RequestLog,
    pub(crate) relay_handle: RelayStatus,
    /// Whether this process is configured to run a relay.
    pub(crate) relays: bool,
    pub(crate) probe: Probe,
}

/// Everything that the router is built from.
#[derive(Debug)]
pub(crate) struct Parts<D: Database> {
    pub(crate) shop: Arc<Shop<D>>,
    pub(crate) idempotency: Idempotency<D>,
    pub(crate) tokens: Tokens,
    pub(crate) rate_limit: Option<Rate>,
    pub(crate) claims: Claims,
    pub(crate) sources: Vec<(String, Verifier)>,
    /// By what repeated webhooks are recognized, by their type.
    pub(crate) dedupe: Vec<(String, DedupeKey)>,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) demo: Option<demo::Demo>,
    pub(crate) random: Random,
}

/// Returns all routes of the shop.
pub(crate) fn router<D: Database>(parts: Parts<D>) -> Router {
    let Parts {
        shop,
        idempotency,
        tokens,
        rate_limit,
        claims,
        sources,
        dedupe,
        metrics,
        demo,
        random,
    } = parts;
    let received = webhooks::routes(&shop, sources, dedupe);
    let body_max = usize::try_from(BODY_BYTES_MAX).unwrap_or(usize::MAX);
    let layers = (RequestIds::new(random), DefaultBodyLimit::max(body_max));
    Router::new()
        .merge(tenants(&shop, &idempotency, tokens, rate_limit, claims))
        .merge(received)
        .merge(operations(&shop, metrics))
        .merge(demo.map(demo::routes).unwrap_or_default())
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(layers)
}

/// Returns the routes for the completer, without authentication, because it knows the tenant.
pub(crate) fn resumed<D: Database>(
    shop: &Arc<Shop<D>>,
    idempotency: &Idempotency<D>,
    random: Random,
) -> Router {
    phased(idempotency)
        .with_state(Arc::clone(shop))
        .fallback(problem::not_found)
        .layer(RequestIds::new(random))
}

/// Returns the phased routes, whose handlers call external systems.
fn phased<D: Database>(idempotency: &Idempotency<D>) -> Router<Arc<Shop<D>>> {
    let phased = |template| idempotency.operation(template).phased();
    let (paid, refunded) = (phased("/payments"), phased("/refunds"));
    let begun = phased("/checkouts");
    Router::new()
        .route("/checkouts", post(checkouts::create::<D>).layer(begun))
        .route("/payments", post(payments::create::<D>).layer(paid))
        .route("/refunds", post(refunds::create::<D>).layer(refunded))
}

/// Returns the routes that require authentication.
fn tenants<D: Database>(
    shop: &Arc<Shop<D>>,
    idempotency: &Idempotency<D>,
    tokens: Tokens,
    rate_limit: Option<Rate>,
    claims: Claims,
) -> Router {
    let operation = |template| idempotency.operation(template);
    let placed = operation("/orders").single_shot();
    let replaced = operation("/orders/{id}").also(Method::PUT).optional();
    let replaced = in_transaction(claims, MethodFilter::PUT, replaced, orders::replace::<D>);
    let email_set = operation("/customers/{id}/email").also(Method::PUT);
    let set_email = customers::set_email::<D>;
    let email_set = in_transaction(claims, MethodFilter::PUT, email_set.optional(), set_email);
    let signed_up = operation("/signups").derived(signups::derive);
    let signed_up = in_transaction(claims, MethodFilter::POST, signed_up, signups::create::<D>);
    // This handler stores a file before its first statement, with which the claim is pipelined. The
    // file may be stored twice, but equal content is one file.
    let uploaded = operation("/uploads")
        .claim_pipelined()
        .body_max(UPLOAD_BYTES_MAX)
        .media_types(["multipart/form-data"]);
    let reserve = idempotency.reserve_handler();
    let routes = Router::new()
        .route(
            "/orders",
            post(orders::create::<D>)
                .layer(placed)
                .get(orders::list::<D>),
        )
        .route("/orders/{id}", replaced.get(orders::read::<D>))
        .route(
            "/customers/{id}/email",
            email_set.get(customers::email::<D>),
        )
        .merge(phased(idempotency))
        .route("/checkouts/{id}", get(checkouts::read::<D>))
        .route("/ledger", get(ledger::list::<D>))
        .route("/signups", signed_up)
        .route("/uploads", post(uploads::create::<D>).layer(uploaded))
        .route("/uploads/{id}", get(uploads::read::<D>))
        .route(
            "/uploads/{id}/thumbnails/{size}",
            get(uploads::thumbnail::<D>),
        )
        .route("/idempotency-keys", post(reserve));
    let stopwatch = idempotency.settings().stopwatch.clone();
    // The rate limit is within authentication, which sets the tenant, and before the keys. Layers
    // that are added together are one route: axum copies and boxes each route for every request.
    let routes = match rate_limit {
        Some(rate) => routes.route_layer((tokens, RateLimit::new(rate, stopwatch))),
        None => routes.route_layer(tokens),
    };
    routes.with_state(Arc::clone(shop))
}

/// Routes a handler that does nothing outside its transaction.
fn in_transaction<D, H, T>(
    claims: Claims,
    methods: MethodFilter,
    operation: OperationLayer<D>,
    handler: H,
) -> MethodRouter<Arc<Shop<D>>>
where
    D: Database,
    H: Handler<T, Arc<Shop<D>>>,
    T: InTransaction<D::Tx> + 'static,
{
    match claims {
        Claims::Optimistic => on(methods, operation.transaction(handler)),
        Claims::First => on(methods, handler).layer(operation),
    }
}

/// Returns the routes for operators: health, metrics and the description of the API.
fn operations<D: Database>(shop: &Arc<Shop<D>>, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/readyz", get(health::ready::<D>))
        .with_state(Arc::clone(shop))
        .route("/metrics", get(health::metrics))
        .with_state(metrics)
        .route("/healthz", get(health::alive))
        .route("/openapi.json", get(openapi::show))
}

/// Sets the `Location` of a created object.
fn locate(response: &mut Response, path: &str) {
    let location = HeaderValue::from_str(path).expect("a path with an id is visible ASCII");
    response.headers_mut().insert(header::LOCATION, location);
}
