//! The shop's own problem codes.

use hapax_http::problem::Code;

/// The provider declined the card; nothing was charged.
pub(crate) const CARD_DECLINED: Code =
    Code::new("PROVIDER.card.declined", 402, "The card was declined");
/// The provider refused for another reason; no money was moved.
pub(crate) const PROVIDER_REFUSED: Code = Code::new(
    "PROVIDER.refused",
    409,
    "The provider refused the operation",
);
/// The provider had already applied the operation. This is not an error: the code marks a response
/// that contains the existing result.
pub(crate) const PROVIDER_DUPLICATE: Code = Code::new(
    "PROVIDER.duplicate",
    201,
    "It was already applied; this is the existing result",
);
/// The provider failed and has done nothing.
pub(crate) const PROVIDER_FAILED: Code = Code::new(
    "TRANSIENT.provider",
    502,
    "The provider failed; nothing was done",
);
/// Stock is insufficient; nothing was charged.
pub(crate) const STOCK_OUT: Code =
    Code::new("CONFLICT.stock.out", 409, "There is not enough in stock");
/// A checkout was refused, and its completed steps were compensated.
pub(crate) const CHECKOUT_FAILED: Code = Code::new(
    "CONFLICT.checkout.failed",
    409,
    "The checkout failed; nothing was charged and nothing is shipped",
);
/// An operator has closed a checkout that could not continue; the shop does not know its outcome.
pub(crate) const CHECKOUT_CLOSED: Code = Code::new(
    "CONFLICT.checkout.closed",
    409,
    "The checkout was closed by an operator; ask the shop for its outcome",
);
/// The refunds of a charge would exceed it.
pub(crate) const REFUND_EXCEEDS: Code = Code::new(
    "CONFLICT.refund.exceeds_charge",
    409,
    "The refund exceeds the charge",
);
/// The refund that a webhook reports is recorded with another amount.
pub(crate) const REFUND_DIFFERS: Code = Code::new(
    "CONFLICT.refund.differs",
    409,
    "The refund is recorded with another amount",
);
/// This e-mail address has already signed up.
pub(crate) const SIGNUP_EXISTS: Code = Code::new(
    "CONFLICT.signup.exists",
    409,
    "The e-mail address has already signed up",
);
/// The content of the uploaded file is neither PNG nor JPEG.
pub(crate) const UPLOAD_TYPE: Code = Code::new(
    "VALIDATION.upload.type",
    415,
    "The file is neither a PNG nor a JPEG",
);
/// The uploaded image would be too large when decoded.
pub(crate) const UPLOAD_DIMENSIONS: Code = Code::new(
    "VALIDATION.upload.dimensions",
    413,
    "The image has too many pixels",
);
