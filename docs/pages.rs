//! The Rust blocks of the README and of the book, as doctests.
//!
//! A page whose code does not compile is worse than none, so each page stands
//! here as the documentation of a module that holds nothing.

#[doc = include_str!("../README.md")]
mod readme {}
#[doc = include_str!("guides/axum.md")]
mod axum {}
#[doc = include_str!("guides/embedded-store.md")]
mod embedded_store {}
#[doc = include_str!("guides/webhooks.md")]
mod webhooks {}
#[doc = include_str!("guides/mail.md")]
mod mail {}
#[doc = include_str!("guides/nats.md")]
mod nats {}
#[doc = include_str!("guides/rabbitmq.md")]
mod rabbitmq {}
#[doc = include_str!("guides/kafka.md")]
mod kafka {}
#[doc = include_str!("guides/redis-streams.md")]
mod redis_streams {}
#[doc = include_str!("guides/postgres-inbox.md")]
mod postgres_inbox {}
#[doc = include_str!("guides/existing-outbox.md")]
mod existing_outbox {}
#[doc = include_str!("guides/change-data-capture.md")]
mod change_data_capture {}
#[doc = include_str!("guides/migrate-from-your-own-tables.md")]
mod migrate_from_your_own_tables {}
#[doc = include_str!("guides/consume-webhooks.md")]
mod consume_webhooks {}
#[doc = include_str!("guides/retry-client.md")]
mod retry_client {}
#[doc = include_str!("guides/traces-and-logs.md")]
mod traces_and_logs {}
#[doc = include_str!("guides/jobs.md")]
mod jobs {}
#[doc = include_str!("guides/encryption-at-rest.md")]
mod encryption_at_rest {}
#[doc = include_str!("guides/own-transaction.md")]
mod own_transaction {}
#[doc = include_str!("guides/postgres-roles.md")]
mod postgres_roles {}
#[doc = include_str!("guides/poolers-and-tls.md")]
mod poolers_and_tls {}
#[doc = include_str!("guides/test-your-service.md")]
mod test_your_service {}
#[doc = include_str!("guides/sagas.md")]
mod sagas {}
#[doc = include_str!("guides/write-a-sink.md")]
mod write_a_sink {}
#[doc = include_str!("explanation/phased-mode.md")]
mod phased_mode {}
