//! The problems that only a shop has.

use hapax_http::problem::Code;

/// The card was refused; nothing was charged.
pub(crate) const CARD_DECLINED: Code =
    Code::new("PROVIDER.card.declined", 402, "The card was declined");
/// The provider refused for another reason; nothing was moved.
pub(crate) const PROVIDER_REFUSED: Code = Code::new(
    "PROVIDER.refused",
    409,
    "The provider refused the operation",
);
/// The provider had done it before: no error, but a mark of the answer that shows the result.
pub(crate) const PROVIDER_DUPLICATE: Code = Code::new(
    "PROVIDER.duplicate",
    201,
    "It was applied before; this is the existing result",
);
/// The provider fails, and says that it has done nothing.
pub(crate) const PROVIDER_FAILED: Code = Code::new(
    "TRANSIENT.provider",
    502,
    "The provider failed, and nothing happened",
);
/// There is not enough in stock; nothing was charged.
pub(crate) const STOCK_OUT: Code =
    Code::new("CONFLICT.stock.out", 409, "There is not enough in stock");
/// A checkout was refused, and what it had done is undone.
pub(crate) const CHECKOUT_FAILED: Code = Code::new(
    "CONFLICT.checkout.failed",
    409,
    "The checkout failed; nothing was charged and nothing is shipped",
);
/// A person has closed a checkout that could not go on; what became of it stands nowhere here.
pub(crate) const CHECKOUT_CLOSED: Code = Code::new(
    "CONFLICT.checkout.closed",
    409,
    "The checkout was closed by a person; ask the shop what became of it",
);
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
/// The uploaded file is no picture that the shop takes, whatever it is called.
pub(crate) const UPLOAD_TYPE: Code = Code::new(
    "VALIDATION.upload.type",
    415,
    "The file is neither a PNG nor a JPEG",
);
/// The uploaded picture would be too large, unpacked.
pub(crate) const UPLOAD_DIMENSIONS: Code = Code::new(
    "VALIDATION.upload.dimensions",
    413,
    "The picture has too many pixels",
);
