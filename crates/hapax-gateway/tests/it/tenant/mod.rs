//! Tenants of requests: tokens, key sets, API keys and client certificates.

mod api_keys;
mod certificate;
mod credentials;
mod jwks;
mod jwt;
