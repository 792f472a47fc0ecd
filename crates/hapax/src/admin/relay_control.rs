//! Relay control: applies to the relay of a service what operators do with its destinations.
//!
//! Operators pause, resume and remove destinations in the database. A relay does not read that: the
//! process that started it passes it the destinations. A [`RelayControl`] reads the changes once a
//! second and returns the destinations as operators want them.
//!
//! Destinations that operators create at run time are not added, because this crate cannot build a
//! sink from a declaration; `hapax relay` can.

use std::{collections::BTreeMap, future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{Admin, AdminError};
use crate::{relay::Destination, telemetry};

/// How often the changes are read.
const POLL: Duration = Duration::from_secs(1);

/// What operators have done with destinations, as of the last read.
///
/// ```
/// use std::sync::Arc;
///
/// use hapax::{
///     admin::{Admin, AdminError, RelayControl},
///     relay::{Destination, RelayHandle},
/// };
///
/// /// Starts a relay that operators can pause, and keeps it up to date.
/// async fn start(
///     admin: Arc<dyn Admin>,
///     destinations: Vec<Destination>,
///     spawn: impl Fn(Vec<Destination>) -> RelayHandle,
/// ) -> Result<(), AdminError> {
///     let mut control = RelayControl::new(admin, destinations);
///     // Read before the start: a paused destination is offered nothing.
///     control.read().await?;
///     let relay = spawn(control.destinations());
///     control.run(|destinations| relay.set(destinations), std::future::pending()).await;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct RelayControl {
    admin: Arc<dyn Admin>,
    destinations: Vec<Destination>,
    version: i64,
    known: BTreeMap<String, Known>,
}

/// What operators have done with one destination.
#[derive(Clone, Copy, Debug)]
struct Known {
    is_paused: bool,
    is_removed: bool,
    version: i64,
}

impl RelayControl {
    /// Controls the destinations of a relay. Nothing has been read yet.
    pub fn new(admin: Arc<dyn Admin>, destinations: Vec<Destination>) -> Self {
        Self {
            admin,
            destinations,
            version: 0,
            known: BTreeMap::new(),
        }
    }

    /// Reads the changes since the last read. Returns false if there are none.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn read(&mut self) -> Result<bool, AdminError> {
        let changes = self.admin.changes(self.version).await?;
        let is_changed = !changes.is_empty();
        for declared in changes {
            self.version = self.version.max(declared.version);
            let known = Known {
                is_paused: declared.paused_at.is_some(),
                is_removed: declared.removed_at.is_some(),
                version: declared.version,
            };
            self.known.insert(declared.name, known);
        }
        Ok(is_changed)
    }

    /// The destinations as operators want them: paused ones are marked, removed ones are left out.
    pub fn destinations(&self) -> Vec<Destination> {
        let wanted = |destination: &Destination| {
            let mut destination = destination.clone();
            if let Some(known) = self.known.get(&destination.name) {
                if known.is_removed {
                    return None;
                }
                destination.paused |= known.is_paused;
                // A new version enables a destination that its receiver had disabled.
                destination.turn = known.version;
            }
            Some(destination)
        };
        self.destinations.iter().filter_map(wanted).collect()
    }

    /// Reads the changes once a second until `shutdown` completes, and passes the destinations to
    /// `set` after each change.
    ///
    /// If the store cannot be read, a warning is logged and the destinations stay as they are.
    pub async fn run(
        mut self,
        set: impl Fn(Vec<Destination>),
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let mut shutdown = pin!(shutdown);
        while timeout(POLL, &mut shutdown).await.is_err() {
            match self.read().await {
                Ok(false) => {}
                Ok(true) => set(self.destinations()),
                Err(error) => {
                    let error = telemetry::error_chain(&error);
                    tracing::warn!(error, "the changes of destinations cannot be read");
                }
            }
        }
    }
}
