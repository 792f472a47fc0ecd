//! Tests of the shop as its users run it: a process, its responses and its files.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

mod shop;
mod simulated_providers;
mod orders;
mod customers;
mod storm;
mod instances;
mod namesakes;
mod payments;
mod probed;
mod promise;
mod checkouts;
mod phased;
mod refunds;
mod refund_webhooks;
mod cut_off;
mod outages;
mod far_sides;
mod signups;
mod uploads;
mod webhooks;
mod tables;
mod ledger;
mod demo;
mod destinations;
mod keys;
mod rate_limits;
mod purged;
mod auth;
mod operations;
mod operators;
mod polling;
mod portal;
mod portal_session;
mod portal_browser;
mod cross_tenant;
mod monitoring;
mod starting;
mod collector;
mod relay_process;
mod traces;
mod masking;
mod request_log;
mod shutdown;
mod failing;
mod floods;
