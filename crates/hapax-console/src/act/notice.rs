//! The message on the page after an action.

use std::fmt::Write as _;

use crate::{
    fields::Fields,
    format::{counted, number},
};

/// The message that the fields of a page ask for.
pub(crate) fn notice(fields: &Fields) -> Option<String> {
    let said = fields.get("said")?;
    if let Some(verb) = said.strip_prefix("selected-") {
        let count = |name| fields.get(name).and_then(|it| it.parse::<u64>().ok());
        return selected(verb, count("done")?, count("of")?);
    }
    if said == "endpoint-replayed" {
        let done = fields.get("done")?.parse().ok()?;
        let deliveries = counted(done, "delivery is", "deliveries are");
        return Some(format!("{deliveries} due now: a relay sends what is due."));
    }
    if said == "endpoint-missing" {
        let done = fields.get("done")?.parse().ok()?;
        let events = counted(done, "event is", "events are");
        let rest = match fields.text("rest") {
            "full" => " The queue is full: send the rest when it is shorter.",
            "more" => " There are more: send them with the same action.",
            _ => "",
        };
        return Some(format!("{events} queued: a relay sends what is due.{rest}"));
    }
    let notice = match said {
        "replayed" => "It is due again.",
        "retried" => "It is due now: its relay makes the next attempt at once.",
        "edited" => "It is due again, with your changes, at this destination only.",
        "discarded" => "It is discarded permanently.",
        "job" => "A job was created: a relay runs it.",
        "paused" => "The destination is paused; relays stop within two seconds.",
        "resumed" => "The destination is resumed.",
        "endpoint-enabled" => "The endpoint is enabled: what waits for it is sent.",
        "endpoint-disabled" => "The endpoint is disabled: nothing is sent to it.",
        "sought" => "The committed position was moved.",
        "removed" => "The destination is being removed by a job.",
        "cancelled" => "The job is cancelled; what it has done is not reverted.",
        "purged" => {
            "The key is deleted. Within a second all nodes know it, and the next request with this \
             key runs its handler again."
        }
        "settled" => "The decision was recorded: the next retry gets what you decided.",
        "decided" => "The decision was recorded and the saga continues.",
        _ => return None,
    };
    Some(notice.to_owned())
}

/// The number of selected deliveries that were changed, and why the others were not.
fn selected(verb: &str, done: u64, of: u64) -> Option<String> {
    let (done_to, was) = match verb {
        "replayed" => ("due again", "dead letters"),
        "discarded" => ("discarded permanently", "dead letters"),
        "retried" => ("due now", "waiting for a retry"),
        _ => return None,
    };
    let verb = if done == 1 { "is" } else { "are" };
    let mut said = format!("{} of {} {verb} {done_to}.", number(done), number(of));
    let left = of.saturating_sub(done);
    if left > 0 {
        let _ = write!(said, " The other {}: no longer {was}.", number(left));
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_unchanged_is_said_with_its_reason() {
        let said = |query: &str| notice(&Fields::parse(query.as_bytes()));
        assert_eq!(
            said("said=selected-replayed&done=2&of=3").as_deref(),
            Some("2 of 3 are due again. The other 1: no longer dead letters.")
        );
        assert_eq!(
            said("said=selected-retried&done=1&of=1").as_deref(),
            Some("1 of 1 is due now.")
        );
        assert_eq!(said("said=selected-eaten&done=1&of=1"), None);
        assert_eq!(said("said=selected-replayed&done=x&of=1"), None);
        assert_eq!(said("said=nonsense"), None);
        assert_eq!(
            said("said=endpoint-replayed&done=1").as_deref(),
            Some("1 delivery is due now: a relay sends what is due.")
        );
        assert_eq!(said("said=endpoint-replayed&done=x"), None);
        assert_eq!(
            said("said=endpoint-missing&done=2&rest=full").as_deref(),
            Some(
                "2 events are queued: a relay sends what is due. The queue is full: send the rest when it \
                 is shorter."
            )
        );
        assert_eq!(said("said=endpoint-missing"), None);
    }
}
