//! Pages of deliveries: which states they contain, which rows they visit, and where the next begins.

use std::{fmt, str::FromStr};

use super::{AdminError, DeliveryFilter, DeliveryStatus};

const PARKED: [DeliveryStatus; 3] = [
    DeliveryStatus::Scheduled,
    DeliveryStatus::Retrying,
    DeliveryStatus::Blocked,
];

/// The rows that a page visits: those of an index of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryIndex {
    /// Dead letters.
    Dead,
    /// Parked deliveries.
    Parked,
    /// All deliveries that have a row.
    All,
}

/// The states that a page contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryStates {
    /// The states.
    pub states: Vec<DeliveryStatus>,
    /// The smallest index that contains them.
    pub index: DeliveryIndex,
    /// Whether they are all states of the index.
    pub is_all: bool,
}

impl DeliveryStates {
    /// The states of a filter.
    ///
    /// # Errors
    /// `Invalid` for a state in which deliveries have no row.
    pub fn of(filter: &DeliveryFilter) -> Result<Self, AdminError> {
        let states = match filter.states.as_slice() {
            [] => &DeliveryStatus::STORED[..],
            states => states,
        };
        if states.iter().any(|it| !DeliveryStatus::STORED.contains(it)) {
            let problem = "must be one in which deliveries have a row";
            return Err(AdminError::invalid("state", problem));
        }
        let (index, every) = if states == [DeliveryStatus::Dead] {
            (DeliveryIndex::Dead, &[DeliveryStatus::Dead][..])
        } else if states.iter().all(|state| PARKED.contains(state)) {
            (DeliveryIndex::Parked, &PARKED[..])
        } else {
            (DeliveryIndex::All, &DeliveryStatus::STORED[..])
        };
        Ok(Self {
            states: states.to_vec(),
            index,
            is_all: every.iter().all(|state| states.contains(state)),
        })
    }
}

/// The start of a page of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryCursor {
    /// The page contains deliveries of events below this position,
    pub position: i64,
    /// and those at this position whose partition sorts before this one.
    pub partition: String,
}

/// The text is not a [`DeliveryCursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDeliveryCursor;

impl fmt::Display for DeliveryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.position, self.partition)
    }
}

impl FromStr for DeliveryCursor {
    type Err = NoDeliveryCursor;

    fn from_str(text: &str) -> Result<Self, NoDeliveryCursor> {
        let (position, partition) = text.split_once(':').ok_or(NoDeliveryCursor)?;
        Ok(Self {
            position: position.parse().map_err(|_| NoDeliveryCursor)?,
            partition: partition.to_owned(),
        })
    }
}

/// The name of a delivery in errors and in the audit log.
pub fn delivery_object(partition: &str, position: i64) -> String {
    format!("delivery {partition} {position}")
}
