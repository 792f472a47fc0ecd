//! Makes or upgrades the tables and functions of Hapax in a database: `migrate URL`.
//!
//! For services that are not written in Rust: run it once per release, with a role that may
//! create. A database that is up to date stays as it is.

use std::error::Error as _;

use hapax::{Clock, Random};
use hapax_postgres::{Postgres, Settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), String> {
    let url = std::env::args()
        .nth(1)
        .ok_or("usage: migrate postgres://USER@HOST/DATABASE")?;
    let store = Postgres::open(Settings::new(url, Clock::system(), Random::system())).await;
    let store = store.map_err(|error| {
        let mut told = vec![error.to_string()];
        let mut cause = error.source();
        while let Some(deeper) = cause {
            told.push(deeper.to_string());
            cause = deeper.source();
        }
        told.join(": ")
    })?;
    store.close();
    Ok(())
}
