//! Tests of the law itself: it holds for what is right and bites what is wrong.

mod plain;
mod broken;
