//! Tests of ingest: the signatures of providers, and the receipt of their webhooks on a real store.
//!
//! The tests of single schemes are beside their code.

mod cases;
mod libraries;
mod fixture;
mod receive;
mod failures;
