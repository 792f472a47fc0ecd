//! Encoding of an event as a stream entry: fields with fixed names.
//!
//! Binary mode has a field for each attribute of CloudEvents, `data` and `datacontenttype`;
//! structured mode has the document in `data`. `id` and the trace are fields in every format.

use hapax::sink::Offer;
use redis::Cmd;

use crate::format::{self, Format};

/// The stream and the encoding.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) stream: &'a str,
    pub(super) length_max: Option<u64>,
    pub(super) format: Format,
    pub(super) source: &'a str,
}

impl Entry<'_> {
    /// The command that adds an event.
    pub(super) fn add(&self, offer: &Offer) -> Cmd {
        let event = offer.event();
        let mut command = redis::cmd("XADD");
        command.arg(self.stream);
        if let Some(length) = self.length_max {
            command.arg("MAXLEN").arg("~").arg(length);
        }
        command.arg("*");
        let written = self.format.write(event, self.source);
        if self.format != Format::Binary {
            command.arg("id").arg(event.id.to_string());
        }
        for (name, value) in format::context(offer) {
            command.arg(name).arg(&*value);
        }
        for (name, value) in &written.attributes {
            // Attributes have no prefix here, so the trace of the attempt replaces that of the
            // event.
            if format::context(offer).all(|(carried, _)| carried != name) {
                command.arg(name.as_bytes()).arg(value);
            }
        }
        command.arg("datacontenttype").arg(&written.content_type);
        command.arg("data").arg(&written.body[..]);
        command
    }
}
