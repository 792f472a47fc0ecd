//! Compares the guide "Write a store" with the example that it quotes.

const GUIDE: &str = include_str!("../../../docs/guides/write-a-store.md");
const SOURCES: [&str; 7] = [
    include_str!("../src/lib.rs"),
    include_str!("../src/tables.rs"),
    include_str!("../src/transaction.rs"),
    include_str!("../src/keys.rs"),
    include_str!("../src/outbox.rs"),
    include_str!("../src/partitions.rs"),
    include_str!("../src/settlements.rs"),
];

#[test]
fn the_guide_quotes_the_example_as_it_is() {
    let quotes = GUIDE.split("```rust,ignore\n").skip(1);
    let quotes: Vec<_> = quotes.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!quotes.is_empty());
    for quote in quotes {
        let is_quoted = SOURCES.iter().any(|source| source.contains(quote));
        assert!(is_quoted, "not in the example:\n{quote}");
    }
}
