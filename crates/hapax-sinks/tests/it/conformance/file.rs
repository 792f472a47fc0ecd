//! The file sink in the conformance suite.

use std::{fs, sync::Arc};

use hapax::sink::Sink;
use hapax_sinks::file::JsonLines;
use hapax_testkit::{
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};
use tempfile::TempDir;

struct Lines {
    sink: Arc<JsonLines>,
    directory: TempDir,
}

sink_suite!(Lines);

impl SinkUnderTest for Lines {
    async fn fresh() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sink = JsonLines::open(directory.path().join("law.jsonl"), "/law").unwrap();
        let sink = Arc::new(sink);
        Self { sink, directory }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn tell(&self, mood: Mood) -> bool {
        mood == Mood::Accept
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let text = fs::read_to_string(self.directory.path().join("law.jsonl")).unwrap();
        let lines = text.lines().map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            Arrival {
                id: event["id"].as_str().unwrap().to_owned(),
                // Line breaks between tokens become spaces, so payloads are not compared byte for
                // byte.
                payload: None,
            }
        });
        lines.collect()
    }
}
