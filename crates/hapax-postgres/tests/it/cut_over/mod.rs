//! The guide to migrating from hand-written tables: its SQL is executed as written, while instances
//! of the old and of the new release serve the same requests.

mod release;
mod keys;
mod outbox;

use crate::fixture::Fixture;

const GUIDE: &str = include_str!("../../../../../docs/guides/migrate-from-your-own-tables.md");

/// A database with the tables of the guide, and a table of orders that accepts duplicates.
async fn begun() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.run(sql("The starting point", 0)).await;
    fixture
        .run("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL)")
        .await;
    fixture
}

/// An SQL block after a heading of the guide.
fn sql(heading: &str, block: usize) -> &'static str {
    let (_, text) = GUIDE
        .split_once(&format!("# {heading}\n"))
        .expect("the guide has the heading");
    let mut blocks = text.split("```sql\n").skip(1);
    let block = blocks.nth(block).expect("the section has the block");
    block.split("```").next().unwrap_or_default()
}
