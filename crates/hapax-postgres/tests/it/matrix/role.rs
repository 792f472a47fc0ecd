//! A service's role: it owns nothing, and may do what the guide grants, word for word.

use hapax_postgres::{Migration, Postgres, Schema, Settings};
use hapax_testkit::{events::claim, postgres::Database};

use super::run;

const GUIDE: &str = include_str!("../../../../../docs/guides/postgres-roles.md");
pub(super) const OWNER: &str = "shop_owner";
pub(super) const SERVICE: &str = "shop";
