//! Cases of the crash matrix: a request, and a fault during it.

/// One case of the matrix.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) asked: Asked,
    pub(super) blow: Blow,
}

/// The request to the shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A payment with a valid card.
    Payment,
    /// A payment, and then a refund of half of it. The fault happens during the refund.
    Refund,
    /// A checkout whose goods can be shipped.
    Checkout,
    /// A checkout that the shipping provider rejects, so the authorization has to be voided.
    Undeliverable,
}

/// The fault of a case.
#[derive(Clone, Debug)]
pub(super) enum Blow {
    /// The shop is killed when it reaches a failpoint for the nth time.
    Kill {
        /// The name of the failpoint.
        place: String,
        /// The number of the hit at which the shop is killed, from 1.
        nth: usize,
    },
    /// A provider fails for this number of calls.
    Fault {
        /// The operation of the provider.
        operation: &'static str,
        /// The way in which the operation fails.
        mode: &'static str,
        /// The number of calls.
        count: u64,
    },
    /// The provider fails, and the shop is killed after its first call.
    Both {
        /// The operation of the provider.
        operation: &'static str,
        /// The way in which the operation fails.
        mode: &'static str,
        /// The name of the failpoint.
        place: &'static str,
        /// The number of the hit at which the shop is killed, from 1.
        nth: usize,
    },
}

/// The failpoints of a checkout, and how often a shop that runs one checkout reaches each of them.
pub(crate) const SAGA: [(&str, usize); 10] = [
    ("checkouts.started", 1),
    ("saga.local.before", 2),
    ("saga.local.after", 2),
    ("saga.intent.before", 3),
    ("saga.intent.after", 3),
    ("saga.call.before", 3),
    ("saga.call.after", 3),
    ("saga.outcome.after", 3),
    ("saga.end.before", 1),
    ("saga.end.after", 1),
];

const MODES: [&str; 6] = [
    "applied_then_lost",
    "lost_before",
    "error_before",
    "error_after",
    "slow",
    "duplicate",
];

/// Returns all cases.
pub(super) fn all() -> Vec<Case> {
    let mut cases = kills();
    cases.extend(faults());
    cases.extend(both());
    cases
}

fn kills() -> Vec<Case> {
    let named = |places: &[(&str, usize)]| -> Vec<(String, usize)> {
        let nth = |(place, count): &(&str, usize)| {
            let place = (*place).to_owned();
            (1..=*count)
                .map(move |nth| (place.clone(), nth))
                .collect::<Vec<_>>()
        };
        places.iter().flat_map(nth).collect()
    };
    let payment = [
        ("payments.call.before", 1),
        ("payments.call.after", 1),
        ("payments.charged", 1),
    ];
    let refund = [
        ("refunds.reserved", 1),
        ("refunds.call.before", 1),
        ("refunds.call.after", 1),
    ];
    let groups = [
        (Asked::Payment, named(&payment)),
        (Asked::Refund, named(&refund)),
        (Asked::Checkout, named(&SAGA)),
        (Asked::Undeliverable, named(&SAGA)),
    ];
    let kill = |asked| {
        move |(place, nth)| Case {
            asked,
            blow: Blow::Kill { place, nth },
        }
    };
    groups
        .into_iter()
        .flat_map(|(asked, places)| places.into_iter().map(kill(asked)))
        .collect()
}

fn faults() -> Vec<Case> {
    let operations = [
        (Asked::Payment, "charge"),
        (Asked::Refund, "refund"),
        (Asked::Checkout, "authorize"),
        (Asked::Checkout, "ship"),
        (Asked::Checkout, "capture"),
        (Asked::Undeliverable, "void"),
    ];
    let modes = |(asked, operation)| {
        MODES.into_iter().flat_map(move |mode| {
            // A single failure is handled by one retry, and often by one lookup.
            [1, 12].map(|count| Case {
                asked,
                blow: Blow::Fault {
                    operation,
                    mode,
                    count,
                },
            })
        })
    };
    operations.into_iter().flat_map(modes).collect()
}

/// The response of the provider is lost, and the shop that waited for it is killed.
fn both() -> Vec<Case> {
    let operations = [
        (Asked::Payment, "charge", "payments.call.after", 1),
        (Asked::Refund, "refund", "refunds.call.after", 1),
        (Asked::Checkout, "authorize", "saga.call.after", 1),
        (Asked::Checkout, "ship", "saga.call.after", 2),
        (Asked::Checkout, "capture", "saga.call.after", 3),
        (Asked::Undeliverable, "void", "saga.call.after", 3),
    ];
    let modes = |(asked, operation, place, nth)| {
        ["applied_then_lost", "lost_before", "error_after"].map(|mode| Case {
            asked,
            blow: Blow::Both {
                operation,
                mode,
                place,
                nth,
            },
        })
    };
    operations.into_iter().flat_map(modes).collect()
}

impl Blow {
    /// The failpoint to set, if the shop is killed.
    pub(super) fn failpoint(&self) -> Option<String> {
        match self {
            Self::Kill { place, nth } => Some(format!("{place}:{nth}")),
            Self::Both { place, nth, .. } => Some(format!("{place}:{nth}")),
            Self::Fault { .. } => None,
        }
    }

    /// The fault to set, if a provider fails.
    pub(super) fn fault(&self) -> Option<(&'static str, &'static str, u64)> {
        match self {
            Self::Kill { .. } => None,
            Self::Fault {
                operation,
                mode,
                count,
            } => Some((operation, mode, *count)),
            Self::Both {
                operation, mode, ..
            } => Some((operation, mode, 1)),
        }
    }

    /// The description of the fault in the table.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Kill { place, nth } => format!("kill at {place} no. {nth}"),
            Self::Fault {
                operation,
                mode,
                count,
            } => format!("{operation} {mode} x {count}"),
            Self::Both {
                operation,
                mode,
                place,
                nth,
            } => format!("{operation} {mode}, kill at {place} no. {nth}"),
        }
    }
}
