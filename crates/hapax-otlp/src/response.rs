//! Response of a collector: the number of spans that it rejected.
//!
//! A success may be partial (`ExportTraceServiceResponse.partial_success`): the rejected spans must
//! not be sent again and are lost. Only their number is parsed; a response that cannot be parsed
//! counts as 0.

/// The field number in `ExportTraceServiceResponse` and in `ExportTracePartialSuccess`.
const PARTIAL_SUCCESS: u64 = 1;
const REJECTED_SPANS: u64 = 1;

/// The number of rejected spans in a response.
pub(crate) fn rejected(answer: &[u8]) -> u64 {
    let Some(Value::Bytes(partial)) = field(answer, PARTIAL_SUCCESS) else {
        return 0;
    };
    match field(partial, REJECTED_SPANS) {
        // A negative number counts as 0.
        Some(Value::Number(spans)) => u64::try_from(spans.cast_signed()).unwrap_or(0),
        _ => 0,
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The last value of a field of a message.
fn field(mut message: &[u8], wanted: u64) -> Option<Value<'_>> {
    let mut found = None;
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut message)?),
            1 => Value::Bytes(message.split_off(..8)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Value::Bytes(message.split_off(..length)?)
            }
            5 => Value::Bytes(message.split_off(..4)?),
            _ => return None,
        };
        if key >> 3 == wanted {
            found = Some(value);
        }
    }
    found
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let byte = *message.split_off_first()?;
        number |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_says_how_many_spans_were_rejected() {
        assert_eq!(rejected(b""), 0);
        assert_eq!(rejected(b"\x0a\x00"), 0);
        assert_eq!(rejected(b"\x0a\x02\x08\x03"), 3);
        // With a preceding message and an unknown field.
        assert_eq!(rejected(b"\x12\x01x\x0a\x09\x12\x04full\x08\xac\x02"), 300);
        // Minus one.
        let minus = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(rejected(minus), 0);
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        for answer in [
            &b"\x0a"[..],
            b"\x0a\x05\x08",
            b"{}",
            b"\x0a\x03\x08\xff\xff",
            b"\x0f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(rejected(answer), 0, "{answer:?}");
        }
    }
}
