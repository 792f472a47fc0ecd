//! Rate limit: a token bucket for the requests of each tenant.
//!
//! The layer belongs between authentication and the operations. A refused request is 429
//! `RATE_LIMIT.exceeded` before its body is read, so it never claims a key. A request that would be
//! replayed counts like any other one. The buckets are in memory and belong to one process, and
//! their number is bounded. A service without this layer has no rate limit.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::{Ready, ready},
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
};
use futures_util::future::Either;
use hapax::{Stopwatch, key::Tenant, limits::RATE_TENANTS};
use tower_layer::Layer;
use tower_service::Service;

use crate::problem::{Problem, RATE_LIMIT};

/// Minimum time between two removals of full buckets. Each of them reads all buckets.
const SWEEP: Duration = Duration::from_secs(1);

/// How many requests a tenant may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests in each `period`, in the long run.
    pub requests: NonZeroU32,
    /// The period, such as a second.
    pub period: Duration,
    /// Requests that may come at once after a pause: the size of the bucket.
    pub burst: NonZeroU32,
}

/// The layer that limits the requests of each tenant.
///
/// ```
/// use std::{num::NonZeroU32, time::Duration};
///
/// use axum::{Router, routing::get};
/// use hapax::Stopwatch;
/// use hapax_http::{Rate, RateLimit};
///
/// fn limited(routes: Router, stopwatch: Stopwatch) -> Router {
///     let rate = Rate {
///         requests: NonZeroU32::new(100).expect("not zero"),
///         period: Duration::from_secs(1),
///         burst: NonZeroU32::new(200).expect("not zero"),
///     };
///     // Authentication is a layer around this one.
///     routes.route_layer(RateLimit::new(rate, stopwatch))
/// }
/// # let routes = Router::new().route("/", get(async || "served"));
/// # limited(routes, Stopwatch::new(|| Duration::ZERO));
/// ```
#[derive(Clone, Debug)]
pub struct RateLimit(Arc<Limit>);

#[derive(Debug)]
struct Limit {
    rate: Rate,
    /// The time in which a bucket gains one request.
    interval: Duration,
    /// The time in which an empty bucket becomes full.
    refill: Duration,
    stopwatch: Stopwatch,
    buckets: Mutex<Buckets>,
}

/// When each bucket is full again. A bucket that is full is the same as none.
#[derive(Debug, Default)]
struct Buckets {
    tenants: HashMap<Tenant, Duration>,
    /// The bucket that requests without a tenant share, and tenants beyond the bound.
    others: Duration,
    /// When full buckets may be removed again.
    sweep_at: Duration,
}

impl RateLimit {
    /// Creates a layer whose buckets are full. All of its clones share the buckets.
    ///
    /// Requests without a tenant share one bucket. So do the tenants beyond
    /// [`RATE_TENANTS`] that send requests at the same time.
    pub fn new(rate: Rate, stopwatch: Stopwatch) -> Self {
        let interval = (rate.period / rate.requests.get()).max(Duration::from_nanos(1));
        Self(Arc::new(Limit {
            rate,
            interval,
            refill: interval.saturating_mul(rate.burst.get()),
            stopwatch,
            buckets: Mutex::default(),
        }))
    }

    /// The rate.
    pub fn rate(&self) -> Rate {
        self.0.rate
    }

    /// Counts a request, for a program that does not use the layer.
    ///
    /// # Errors
    /// The response to a request that exceeds the rate: 429 with `Retry-After`. It counts as none.
    pub fn admit(&self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        self.0.take(tenant).map_err(|wait| self.0.refusal(wait))
    }

    /// Takes back the count of a request that was admitted, and then refused for another reason.
    pub fn give_back(&self, tenant: Option<&Tenant>) {
        self.0.give_back(tenant);
    }
}

impl Limit {
    /// Takes a request out of the tenant's bucket. If the bucket is empty, returns how long it
    /// takes until it contains one.
    fn take(&self, tenant: Option<&Tenant>) -> Result<(), Duration> {
        let now = self.stopwatch.reading();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.of(tenant, now, self.refill);
        let then_full_at = (*full_at).max(now).saturating_add(self.interval);
        let wait = then_full_at.saturating_sub(now.saturating_add(self.refill));
        if wait > Duration::ZERO {
            return Err(wait);
        }
        *full_at = then_full_at;
        Ok(())
    }

    fn give_back(&self, tenant: Option<&Tenant>) {
        let now = self.stopwatch.reading();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.of(tenant, now, self.refill);
        *full_at = full_at.saturating_sub(self.interval);
    }

    fn refusal(&self, wait: Duration) -> Problem {
        let Rate {
            requests,
            period,
            burst,
        } = self.rate;
        let detail = format!(
            "at most {requests} requests in {period:?} are accepted, and {burst} at once; send the \
             same request again after the time in Retry-After"
        );
        Problem::new(RATE_LIMIT).detail(detail).retry_after(wait)
    }
}

impl Buckets {
    fn of(&mut self, tenant: Option<&Tenant>, now: Duration, refill: Duration) -> &mut Duration {
        let Some(tenant) = tenant else {
            return &mut self.others;
        };
        if self.tenants.len() >= RATE_TENANTS && !self.tenants.contains_key(tenant) {
            if self.sweep_at <= now {
                self.tenants.retain(|_, full_at| *full_at > now);
                self.sweep_at = now.saturating_add(refill.min(SWEEP));
            }
            if self.tenants.len() >= RATE_TENANTS {
                return &mut self.others;
            }
        }
        self.tenants.entry(tenant.clone()).or_insert(now)
    }
}

impl<S> Layer<S> for RateLimit {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        let limit = Arc::clone(&self.0);
        RateLimited { inner, limit }
    }
}

/// A service whose requests are limited.
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    inner: S,
    limit: Arc<Limit>,
}

impl<S> Service<Request> for RateLimited<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self.limit.take(request.extensions().get()) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(wait) => {
                let refusal = self.limit.refusal(wait).into_response();
                Either::Right(ready(Ok(refusal)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit of two requests a second, three at once, and its clock in milliseconds.
    fn limit() -> (RateLimit, Arc<Mutex<u64>>) {
        let millis = Arc::new(Mutex::new(0));
        let read = Arc::clone(&millis);
        let stopwatch = Stopwatch::new(move || Duration::from_millis(*read.lock().unwrap()));
        let two = NonZeroU32::new(2).unwrap();
        let rate = Rate {
            requests: two,
            period: Duration::from_secs(1),
            burst: two.saturating_add(1),
        };
        (RateLimit::new(rate, stopwatch), millis)
    }

    fn tenant(number: usize) -> Tenant {
        Tenant::new(format!("tenant-{number}")).unwrap()
    }

    #[test]
    fn a_bucket_has_its_burst_and_then_its_rate_and_says_how_long_to_wait() {
        let (limit, millis) = limit();
        let ann = tenant(1);
        let take = |at: u64| {
            *millis.lock().unwrap() = at;
            limit.0.take(Some(&ann))
        };
        assert_eq!([take(0), take(0), take(0)], [Ok(()); 3]);
        assert_eq!(take(0), Err(Duration::from_millis(500)));
        assert_eq!(take(400), Err(Duration::from_millis(100)));
        // A refused request costs nothing.
        assert_eq!(take(500), Ok(()));
        assert_eq!(take(500), Err(Duration::from_millis(500)));
        // A pause fills the bucket, and no more than that.
        assert_eq!([take(60_000), take(60_000), take(60_000)], [Ok(()); 3]);
        assert_eq!(take(60_000), Err(Duration::from_millis(500)));
    }

    #[test]
    fn a_request_that_is_given_back_was_not_counted() {
        let (limit, _) = limit();
        let ann = tenant(1);
        for _ in 0..10 {
            assert!(limit.admit(Some(&ann)).is_ok());
            limit.give_back(Some(&ann));
        }
        // A bucket is never fuller than full.
        limit.give_back(Some(&ann));
        for _ in 0..3 {
            assert!(limit.admit(Some(&ann)).is_ok());
        }
        assert!(limit.admit(Some(&ann)).is_err());
    }

    #[test]
    fn each_tenant_has_a_bucket_and_requests_without_one_share_theirs() {
        let (limit, _) = limit();
        for _ in 0..3 {
            for who in [Some(tenant(1)), Some(tenant(2)), None] {
                assert_eq!(limit.0.take(who.as_ref()), Ok(()));
            }
        }
        for who in [Some(tenant(1)), Some(tenant(2)), None] {
            assert!(limit.0.take(who.as_ref()).is_err());
        }
    }

    #[test]
    fn the_number_of_buckets_is_bounded_and_full_ones_make_room() {
        let (limit, millis) = limit();
        let count = || limit.0.buckets.lock().unwrap().tenants.len();
        for number in 0..RATE_TENANTS + 3 {
            assert_eq!(limit.0.take(Some(&tenant(number))), Ok(()));
        }
        assert_eq!(count(), RATE_TENANTS);
        // Those beyond the bound share one bucket, which is empty now.
        let late = tenant(RATE_TENANTS + 3);
        assert!(limit.0.take(Some(&late)).is_err());
        *millis.lock().unwrap() = 60_000;
        assert_eq!(limit.0.take(Some(&late)), Ok(()));
        assert_eq!(count(), 1);
    }

    #[test]
    fn buckets_that_fill_slowly_make_room_as_soon_as_they_are_full() {
        let millis = Arc::new(Mutex::new(0));
        let read = Arc::clone(&millis);
        let stopwatch = Stopwatch::new(move || Duration::from_millis(*read.lock().unwrap()));
        let hundred = NonZeroU32::new(100).unwrap();
        let rate = Rate {
            requests: hundred,
            period: Duration::from_hours(1),
            burst: hundred,
        };
        let limit = RateLimit::new(rate, stopwatch);
        // The last of these tenants share a bucket.
        for number in 0..RATE_TENANTS + 3 {
            assert_eq!(limit.0.take(Some(&tenant(number))), Ok(()));
        }
        // A bucket that has lost one request is full again after 36 s, an empty one after an hour.
        *millis.lock().unwrap() = 36_000;
        let late = tenant(RATE_TENANTS + 3);
        for _ in 0..100 {
            assert_eq!(limit.0.take(Some(&late)), Ok(()));
        }
        assert!(limit.0.take(Some(&late)).is_err());
        assert_eq!(limit.0.buckets.lock().unwrap().tenants.len(), 1);
    }
}
