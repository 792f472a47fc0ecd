//! Encoding of spans as `ExportTraceServiceRequest` (OTLP, protobuf).
//!
//! The encoder is written by hand, because it only writes five messages and reads none. The numbers
//! are those of `opentelemetry/proto/trace/v1/trace.proto`. The shop's tests decode its output with
//! the official classes.

use crate::span::{EndedSpan, Value};

/// Wire types.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;
/// `Status.code` of a span that failed.
const ERROR: u64 = 2;

/// Encodes one request with the spans of one service.
pub(crate) fn request(resource: &[(&str, String)], spans: &[EndedSpan]) -> Vec<u8> {
    let mut out = Writer::default();
    out.message(1, |resource_spans| {
        resource_spans.message(1, |out| {
            for (name, value) in resource {
                out.attribute(1, name, &Value::Text(value.clone()));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.bytes(1, b"hapax");
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                scope_spans.message(2, |out| write(out, span));
            }
        });
    });
    out.0
}

fn write(out: &mut Writer, span: &EndedSpan) {
    let (context, fields) = (&span.context, &span.fields);
    out.bytes(1, &context.trace_id().get().to_be_bytes());
    out.bytes(2, &context.span_id().get().to_be_bytes());
    if let Some(parent) = fields.parent {
        out.bytes(4, &parent.get().to_be_bytes());
    }
    out.bytes(5, fields.name.as_bytes());
    out.number(6, fields.kind as u64);
    out.fixed64(7, span.start_ns);
    out.fixed64(8, span.end_ns);
    for (name, value) in &fields.attributes {
        out.attribute(9, name, value);
    }
    if fields.is_error {
        out.message(15, |status| status.number(3, ERROR));
    }
    out.fixed32(16, u32::from(context.flags()));
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn key(&mut self, field: u64, wire: u8) {
        self.varint((field << 3) | u64::from(wire));
    }

    fn number(&mut self, field: u64, number: u64) {
        self.key(field, VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn attribute(&mut self, field: u64, name: &str, value: &Value) {
        self.message(field, |out| {
            out.bytes(1, name.as_bytes());
            out.message(2, |out| match value {
                Value::Text(text) => out.bytes(1, text.as_bytes()),
                Value::Switch(on) => out.number(2, u64::from(*on)),
                Value::Integer(number) => out.number(3, number.cast_unsigned()),
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_protobuf_has_them() {
        let mut out = Writer::default();
        out.number(1, 150);
        out.bytes(2, b"testing");
        out.number(16, 0);
        out.fixed32(3, 1);
        let expected = b"\x08\x96\x01\x12\x07testing\x80\x01\x00\x1d\x01\x00\x00\x00";
        assert_eq!(out.0, expected);
    }

    #[test]
    fn a_negative_number_takes_ten_bytes() {
        let mut out = Writer::default();
        out.number(1, (-1_i64).cast_unsigned());
        assert_eq!(out.0.len(), 11);
    }
}
