//! Plan of a run: the tenants, their endpoints, and the endpoints that get sick.
//!
//! Endpoints and events have numbers. The number of an event determines its tenant, so a receiver
//! knows whether it may have the event.

use hapax::key::Tenant;

/// Number of endpoints of a tenant.
pub(super) const EACH: usize = 10;
/// One endpoint of so many gets sick.
pub(super) const ONE_OF: usize = 100;
/// The place of the sick endpoint among them.
const SICK: usize = 37;

/// The endpoints of all tenants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Number of tenants.
    pub(super) tenants: usize,
}

/// How a sick endpoint behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sickness {
    /// It reads requests and never responds.
    Hangs,
    /// It responds with 500.
    Fails,
    /// It refuses connections.
    Refuses,
}

impl Plan {
    /// Number of endpoints.
    pub(super) fn endpoints(self) -> usize {
        self.tenants * EACH
    }

    /// The numbers of the endpoints that receive an event.
    pub(super) fn receivers(self, event: usize) -> std::ops::Range<usize> {
        let first = event % self.tenants * EACH;
        first..first + EACH
    }

    /// Whether an endpoint belongs to the tenant of an event.
    pub(super) fn belongs(self, endpoint: usize, event: usize) -> bool {
        self.receivers(event).contains(&endpoint)
    }

    /// The number of the endpoints that receive an event and get sick.
    pub(super) fn sick_of(self, event: usize) -> usize {
        let own = self.receivers(event);
        own.filter(|it| sickness(*it).is_some()).count()
    }

    /// The numbers of the endpoints that get sick.
    pub(super) fn sick(self) -> impl Iterator<Item = usize> {
        (SICK..self.endpoints()).step_by(ONE_OF)
    }
}

/// How an endpoint behaves in a round with sick endpoints; `None` if it stays healthy. Half of
/// them hang, a quarter fail and a quarter refuse connections.
pub(super) fn sickness(endpoint: usize) -> Option<Sickness> {
    (endpoint % ONE_OF == SICK).then_some(match endpoint / ONE_OF % 4 {
        0 | 2 => Sickness::Hangs,
        1 => Sickness::Fails,
        _ => Sickness::Refuses,
    })
}

/// The id of an endpoint. The ids are in the order of the numbers.
pub(super) fn id(endpoint: usize) -> String {
    format!("ep_{endpoint:032x}")
}

/// The name of the tenant of an endpoint.
pub(super) fn tenant_name(endpoint: usize) -> String {
    format!("tenant_{}", endpoint / EACH)
}

/// The tenant of an event.
pub(super) fn tenant_of(plan: Plan, event: u64) -> Option<Tenant> {
    let event = usize::try_from(event).ok()?;
    Tenant::new(tenant_name(plan.receivers(event).start)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_endpoint_of_a_hundred_gets_sick_and_no_tenant_has_two() {
        let plan = Plan { tenants: 1_000 };
        let sick: Vec<_> = plan.sick().collect();
        assert_eq!((plan.endpoints(), sick.len()), (10_000, 100));
        let of = |kind| {
            let same = sick.iter().filter(|it| sickness(**it) == Some(kind));
            same.count()
        };
        let kinds = [Sickness::Hangs, Sickness::Fails, Sickness::Refuses];
        assert_eq!(kinds.map(of), [50, 25, 25]);
        let all = (0..plan.endpoints()).filter(|it| sickness(*it).is_some());
        assert_eq!(all.collect::<Vec<_>>(), sick);
        let tenants: std::collections::BTreeSet<_> =
            sick.iter().map(|it| tenant_name(*it)).collect();
        assert_eq!(tenants.len(), sick.len());
        assert_eq!((plan.sick_of(3), plan.sick_of(4)), (1, 0));
    }

    #[test]
    fn an_event_is_for_the_endpoints_of_one_tenant() {
        let plan = Plan { tenants: 3 };
        assert_eq!(plan.receivers(4), 10..20);
        assert!(plan.belongs(19, 4) && !plan.belongs(20, 4));
        let tenant = tenant_of(plan, 4).unwrap();
        assert_eq!(tenant.as_str(), tenant_name(10));
        assert!(id(9) < id(10));
    }
}
