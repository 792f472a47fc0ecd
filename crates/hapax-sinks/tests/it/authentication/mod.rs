//! Authentication of the webhook sink at the endpoint, beside the signature.

mod fixed;
mod oauth;
mod certificate;
