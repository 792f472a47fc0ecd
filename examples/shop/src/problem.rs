//! The problems that only a shop has.

use hapax_http::problem::Code;

/// The card was refused; nothing was charged.
pub(crate) const CARD_DECLINED: Code =
    Code::new("PROVIDER.card.declined", 402, "The card was declined");
/// The refunds of a charge would exceed it.
pub(crate) const REFUND_EXCEEDS: Code = Code::new(
    "CONFLICT.refund.exceeds_charge",
    409,
    "The refund exceeds the charge",
);
/// Somebody signed up with this e-mail before.
pub(crate) const SIGNUP_EXISTS: Code = Code::new(
    "CONFLICT.signup.exists",
    409,
    "The e-mail has signed up already",
);
