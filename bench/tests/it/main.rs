//! Test of the harness: every measurement runs, with one short round. The figures mean nothing.

mod smoke;
