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
        let source = config["sources"]["outbox"].as_table().unwrap();
        let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
        let many = |value: &toml::Value| value.as_array().unwrap().iter().map(text).collect();
        let mut table = TableSource::new("outbox", "");
        for (key, value) in source {
            match key.as_str() {
                "table" => table.table = text(value),
                "key" => table.key = many(value),
                "order" => table.order = many(value),
                "type" => table.kind = Some(text(value)),
                "payload" => table.payload = text(value),
                "headers" => table.headers = Some(text(value)),
                "aggregate_type" => table.aggregate_type = Some(text(value)),
                "aggregate_type_constant" => table.aggregate_type_constant = Some(text(value)),
                "aggregate_id" => table.aggregate_id = Some(text(value)),
                "sequence" => table.sequence = Some(text(value)),
                "available_at" => table.available_at = Some(text(value)),
                "published" => table.published = Some(text(value)),
                "pending" => table.pending = Some(text(value)),
                "processed" => table.processed = Some(text(value)),
                "failed" => table.failed = Some(text(value)),
                "published_at" => table.published_at = Some(text(value)),
                other => panic!("unexpected setting in a sample: {other}"),
            }
        }
        table
    }
}
