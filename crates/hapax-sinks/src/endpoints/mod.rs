//! Endpoints of tenants: the requests to them, and the operations that need their secrets.
//!
//! [`EndpointTransport`] sends events to endpoints for `hapax::endpoint`. [`TenantEndpoints`] creates,
//! changes and tests endpoints above a store that operators use; the store has only the ciphertext of
//! their secrets, which [`Keys`] encrypts and decrypts.

mod keys;
mod previous;
mod transport;
mod operations;

pub use keys::{Keys, Secrets};
pub use operations::{OperationsSettings, TenantEndpoints};
pub use transport::{EndpointTransport, TransportSettings};
