//! The harness runs: every measurement, a round of a moment each. Its figures mean nothing here.

mod smoke;
