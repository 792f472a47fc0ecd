//! Actions on deliveries that were selected in a list.
//!
//! Each delivery is changed in a separate transaction, with a line in the audit log. One whose
//! state has changed in the meantime is left unchanged, and the page after the action says how many
//! these are.

use hapax::admin::{Actor, Admin, AdminError};

use super::{Action, Done, Plan, SELECTED_MAX, Selected};
use crate::{
    fields::Fields,
    format::{cell, counted, name},
    html::el,
    pages::ErrorPage,
};

impl Action {
    /// Reads the selected deliveries: `one` for each, the partition and the position.
    pub(super) fn selected(verb: Selected, fields: &Fields) -> Result<Self, ErrorPage> {
        let wrong = || ErrorPage::wrong("The field one is not a partition and a position.");
        let mut deliveries = Vec::new();
        for one in fields.all("one") {
            let (partition, position) = one.rsplit_once(' ').ok_or_else(wrong)?;
            let position = position.parse().map_err(|_| wrong())?;
            deliveries.push((partition.to_owned(), position));
        }
        if deliveries.is_empty() {
            let why = "Nothing is selected: go back and check the boxes of the rows. Nothing was \
                       done.";
            return Err(ErrorPage::wrong(why));
        }
        if deliveries.len() > SELECTED_MAX {
            let why = format!("At most {SELECTED_MAX} deliveries can be selected at once.");
            return Err(ErrorPage::wrong(why));
        }
        Ok(Self::Selected { verb, deliveries })
    }
}

impl Selected {
    /// The confirmation page.
    pub(super) fn plan(self, deliveries: &[(String, i64)]) -> Plan {
        let count = u64::try_from(deliveries.len()).unwrap_or(u64::MAX);
        let letters = counted(count, "dead letter", "dead letters");
        let (title, says, does) = match self {
            Self::Replay => (
                "Replay selected dead letters",
                format!("{letters} will be due again at once, with no attempts counted."),
                "Replay them",
            ),
            Self::Discard => (
                "Discard selected dead letters",
                format!(
                    "{letters} will be discarded permanently. Later events that they block are \
                     delivered."
                ),
                "Discard them",
            ),
            Self::Retry => (
                "Retry selected deliveries now",
                format!(
                    "{} will be due now. Their attempts still count.",
                    counted(count, "delivery", "deliveries")
                ),
                "Retry them",
            ),
        };
        let mut plan = Plan::new(title, says, does, self.list().to_owned());
        let item = |(partition, position): &(String, i64)| {
            let said = format!("event {position} at {partition}");
            el("li").add(name(&said))
        };
        // A scrolling region has to be reachable by keyboard.
        let list = el("ul").class("chosen").attr("tabindex", "0");
        plan.more = cell(list.all(deliveries.iter().map(item)));
        plan
    }

    /// Executes the action.
    pub(super) async fn run(
        self,
        store: &dyn Admin,
        actor: &Actor,
        deliveries: &[(String, i64)],
        reason: &str,
    ) -> Result<Done, ErrorPage> {
        let mut done = 0;
        for (partition, position) in deliveries {
            let changed = match self {
                Self::Replay => store.replay_dead_letter(actor, partition, *position),
                Self::Discard => store.discard_dead_letter(actor, partition, *position, reason),
                Self::Retry => store.retry_delivery_now(actor, partition, *position),
            };
            match changed.await {
                Ok(()) => done += 1,
                Err(AdminError::Conflict { .. } | AdminError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let said = match self {
            Self::Replay => "replayed",
            Self::Discard => "discarded",
            Self::Retry => "retried",
        };
        let of = deliveries.len();
        let said = format!("selected-{said}&done={done}&of={of}");
        Ok(Done::Next(self.list().to_owned(), said))
    }

    const fn list(self) -> &'static str {
        match self {
            Self::Replay | Self::Discard => "/console/dead-letters",
            Self::Retry => "/console/deliveries",
        }
    }
}
