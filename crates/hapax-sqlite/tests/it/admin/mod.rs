//! The handle of operators: which databases it opens, and how it works beside a running store.

mod conformance;
mod scene;
mod opening;
mod beside;
mod processes;
mod crash;
mod dead_letters;
