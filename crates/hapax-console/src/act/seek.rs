//! Moving the position of a polling endpoint: the confirmation page, and the execution.

use hapax::{
    admin::{Actor, Admin},
    delivery::Start,
};

use super::{Plan, plan::field};
use crate::{
    fields::{Fields, path_of},
    format::count,
    pages::ErrorPage,
};

/// A seek of one polling endpoint.
pub(super) struct SeekAct {
    name: String,
}

impl SeekAct {
    pub(super) fn read(fields: &Fields) -> Result<Self, ErrorPage> {
        let name = fields.get("polling").map(str::to_owned);
        let name = name.ok_or_else(|| ErrorPage::wrong("The field polling is missing."))?;
        Ok(Self { name })
    }

    /// The effect, with what the endpoint has not committed now.
    pub(super) async fn plan(&self, store: &dyn Admin, actor: &Actor) -> Result<Plan, ErrorPage> {
        let name = self.name.as_str();
        let endpoint = store.polling_endpoint(actor, name).await?;
        let lag = store.polling_lag(actor, name).await?;
        let says = format!(
            "The committed position of {name} is {} now, and {} of its events follow. It is moved \
             to the new position below. Events between the two positions are returned again, or \
             skipped. If its consumer commits a later cursor afterwards, the position changes \
             again: stop the consumer first.",
            endpoint.position,
            count(lag.events)
        );
        let back = path_of("/console/polling", name);
        let mut plan = Plan::new("Move a position", says, "Move it", back);
        let label = "To: now, beginning, or a time such as 2026-01-31T12:00:00Z";
        plan.more = field("to", label, "");
        plan.is_short = false;
        Ok(plan)
    }

    /// Executes the seek.
    pub(super) async fn run(
        &self,
        store: &dyn Admin,
        actor: &Actor,
        fields: &Fields,
    ) -> Result<(String, &'static str), ErrorPage> {
        let to = fields.text("to").trim().parse::<Start>();
        let to = to.map_err(|error| {
            let why = format!("The new position {error}. Nothing was done.");
            ErrorPage::wrong(why)
        })?;
        store.seek_polling_endpoint(actor, &self.name, to).await?;
        Ok((path_of("/console/polling", &self.name), "sought"))
    }
}
