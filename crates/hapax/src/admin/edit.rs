//! The edited event of a dead letter.

use super::{AdminError, patch::merged};
use crate::{
    event::{Headers, Payload},
    keyring::{ENCRYPTED_UNDER, Keyring},
    outbox::{BuiltEvent, OutboxEvent},
};

/// The edited event that is offered in place of a dead letter's event: its payload with a patch
/// applied, encrypted if that of the event was. `headers` are those of the row, as JSON.
///
/// # Errors
/// `Invalid` if the patch is not a JSON object, or makes the payload too large; `Conflict` if the
/// payload is not JSON.
pub fn edited(
    event: &OutboxEvent,
    headers: &str,
    patch: &str,
    keyring: &Keyring,
) -> Result<BuiltEvent, AdminError> {
    let headers: Headers = serde_json::from_str(headers).unwrap_or_default();
    let mut event = event.event.clone();
    // An event that has the header but is not encrypted is treated like one without the header.
    let is_mistaken = event.headers.remove(ENCRYPTED_UNDER).is_some();
    let Payload::Json(payload) = &event.payload else {
        return Err(AdminError::conflict("its payload is not JSON"));
    };
    let payload = merged(payload, patch).map_err(|wrong| AdminError::invalid("patch", wrong))?;
    let is_encrypted = headers.contains_key(ENCRYPTED_UNDER) && !is_mistaken;
    BuiltEvent::anew(&event, payload, is_encrypted, keyring)
        .map_err(|error| AdminError::invalid("patch", error.to_string()))
}
