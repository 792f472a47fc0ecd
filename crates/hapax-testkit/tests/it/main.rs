//! Tests of the conformance suites: a correct sink passes them, and a broken one does not.

mod plain;
mod broken;
