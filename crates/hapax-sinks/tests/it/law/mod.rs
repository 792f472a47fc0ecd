//! Every sink under the law of `hapax-testkit`.

mod webhook;
mod smtp;
mod handler;
mod file;
