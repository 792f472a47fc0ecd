//! The sample configurations: the tables in their comments, and the sources that they describe.

use hapax_postgres::TableSource;

/// The text of a sample configuration.
pub(crate) struct Sample(&'static str);

pub(crate) const TOPIC: Sample = Sample(include_str!(
    "../../../../../examples/existing-outbox/topic.toml"
));
pub(crate) const AGGREGATE: Sample = Sample(include_str!(
    "../../../../../examples/existing-outbox/aggregate.toml"
));
pub(crate) const STATUS: Sample = Sample(include_str!(
    "../../../../../examples/existing-outbox/status.toml"
));

impl Sample {
    /// The table in the comment, and its index.
    pub(crate) fn ddl(&self) -> String {
        let lines = self.0.lines().filter_map(|line| line.strip_prefix("#   "));
        let ddl: Vec<_> = lines.collect();
        // `CONCURRENTLY` is not possible in a transaction.
        ddl.join("\n").replace("CONCURRENTLY ", "")
    }

    /// The source `outbox` of the configuration.
    pub(crate) fn table(&self) -> TableSource {
        let config: toml::Table = self.0.parse().expect("the sample is not valid TOML");
        let source = config["sources"]["outbox"].clone();
        let mut table: TableSource = source.try_into().expect("the source is not valid");
        "outbox".clone_into(&mut table.name);
        table
    }
}
