//! Decoder of `pgoutput`, PostgreSQL's plugin for logical replication, protocol version 1.
//!
//! In this version the server sends a transaction when it commits, so a transaction that is rolled
//! back is never seen. Every length is checked against the message; bytes that are left over, or a
//! message of an unknown kind, are errors.

use bytes::{Buf as _, Bytes};

use super::Change;

/// A message of the plugin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A transaction begins, whose commit record is at this position.
    Begin { commit_lsn: u64, committed_at: i64 },
    /// The transaction ends; the log continues at this position.
    Commit { end_lsn: u64 },
    /// The definition of a table, before its first change and after each of its changes.
    Relation(Relation),
    /// A row was inserted.
    Insert { relation: u32, new: Vec<Datum> },
    /// A row was updated. The old row, or its key, is there if the key changed or the replica
    /// identity is full.
    Update {
        relation: u32,
        old: Option<Old>,
        new: Vec<Datum>,
    },
    /// A row was deleted.
    Delete { relation: u32, old: Old },
    /// Tables were truncated.
    Truncate { relations: Vec<u32> },
    /// A message of `pg_logical_emit_message`.
    Logical {
        is_transactional: bool,
        prefix: String,
        content: Bytes,
    },
    /// A type or the origin of a transaction, which feeds do not use.
    Other,
}

/// The definition of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) id: u32,
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) columns: Vec<Column>,
}

/// The definition of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    /// Whether it is part of the replica identity.
    pub(super) is_key: bool,
    /// The object id of its type.
    pub(super) of_type: u32,
}

/// The row before a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Old {
    /// Whether only the columns of the replica identity are known.
    pub(super) is_key: bool,
    pub(super) row: Vec<Datum>,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Datum {
    Null,
    /// A long value, stored outside of the row, that the change has not touched and that is not sent.
    Unchanged,
    /// The value as text.
    Text(Bytes),
}

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a change cannot be decoded: {0}")]
pub(super) struct DecodeError(&'static str);

/// Decodes one message.
pub(super) fn decode(body: Bytes) -> Result<Message, DecodeError> {
    let mut reader = Reader(body);
    let message = match reader.byte()? {
        b'B' => Message::Begin {
            commit_lsn: reader.long()?,
            committed_at: reader.long()?.cast_signed(),
        }
        .after(reader.int()),
        b'C' => {
            let (_flags, _commit_lsn) = (reader.byte()?, reader.long()?);
            let end_lsn = reader.long()?;
            Message::Commit { end_lsn }.after(reader.long())
        }
        b'R' => Ok(Message::Relation(reader.relation()?)),
        b'I' => {
            let relation = reader.int()?;
            reader.expect(b'N')?;
            let new = reader.row()?;
            Ok(Message::Insert { relation, new })
        }
        b'U' => reader.update(),
        b'D' => {
            let relation = reader.int()?;
            let is_key = reader.kind_of_old()?;
            let row = reader.row()?;
            let old = Old { is_key, row };
            Ok(Message::Delete { relation, old })
        }
        b'T' => reader.truncate(),
        b'M' => reader.logical(),
        b'O' | b'Y' => return Ok(Message::Other),
        _ => return Err(DecodeError("its kind is unknown")),
    }?;
    if reader.0.is_empty() {
        Ok(message)
    } else {
        Err(DecodeError("it is longer than it says"))
    }
}

/// The subject of a message that was cut, as far as it is known.
pub(super) enum Head {
    /// A row of this table.
    Row { relation: u32, change: Change },
    /// A message. There is no prefix if it is so long that it was cut, too.
    Logical {
        is_transactional: bool,
        prefix: Option<String>,
    },
}

/// Reads the first bytes of a message that was cut.
pub(super) fn head(body: Bytes) -> Result<Head, DecodeError> {
    let mut reader = Reader(body);
    let change = match reader.byte()? {
        b'I' => Change::Insert,
        b'U' => Change::Update,
        b'D' => Change::Delete,
        b'M' => {
            let (flags, _lsn) = (reader.byte()?, reader.long()?);
            return Ok(Head::Logical {
                is_transactional: flags & 1 == 1,
                prefix: reader.name().ok(),
            });
        }
        _ => return Err(DecodeError("it is too long")),
    };
    let relation = reader.int()?;
    Ok(Head::Row { relation, change })
}

impl Message {
    /// The message, if the last field could be read too.
    fn after<T>(self, last: Result<T, DecodeError>) -> Result<Self, DecodeError> {
        last.map(|_| self)
    }
}

/// The unread bytes of a message.
struct Reader(Bytes);

impl Reader {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.0.try_get_u8().map_err(|_| SHORT)
    }

    fn short(&mut self) -> Result<u16, DecodeError> {
        self.0.try_get_u16().map_err(|_| SHORT)
    }

    fn int(&mut self) -> Result<u32, DecodeError> {
        self.0.try_get_u32().map_err(|_| SHORT)
    }

    fn long(&mut self) -> Result<u64, DecodeError> {
        self.0.try_get_u64().map_err(|_| SHORT)
    }

    /// Bytes with their length in front.
    fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = usize::try_from(self.int()?).map_err(|_| SHORT)?;
        if length > self.0.len() {
            return Err(SHORT);
        }
        Ok(self.0.split_to(length))
    }

    /// A name that ends with a zero byte. In a database without an encoding it may be any bytes.
    fn name(&mut self) -> Result<String, DecodeError> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(SHORT)?;
        let name = self.0.split_to(end);
        self.0.advance(1);
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    fn expect(&mut self, kind: u8) -> Result<(), DecodeError> {
        if self.byte()? == kind {
            Ok(())
        } else {
            Err(DecodeError("a row has an unknown kind"))
        }
    }

    /// Whether the old row consists of its key only.
    fn kind_of_old(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            b'K' => Ok(true),
            b'O' => Ok(false),
            _ => Err(DecodeError("a row has an unknown kind")),
        }
    }

    fn relation(&mut self) -> Result<Relation, DecodeError> {
        let id = self.int()?;
        let (schema, table) = (self.name()?, self.name()?);
        let _replica_identity = self.byte()?;
        let mut columns = Vec::new();
        for _ in 0..self.short()? {
            let flags = self.byte()?;
            let name = self.name()?;
            let of_type = self.int()?;
            let _modifier = self.int()?;
            columns.push(Column {
                name,
                is_key: flags & 1 == 1,
                of_type,
            });
        }
        Ok(Relation {
            id,
            schema,
            table,
            columns,
        })
    }

    fn row(&mut self) -> Result<Vec<Datum>, DecodeError> {
        let mut row = Vec::new();
        for _ in 0..self.short()? {
            row.push(match self.byte()? {
                b'n' => Datum::Null,
                b'u' => Datum::Unchanged,
                b't' => Datum::Text(self.bytes()?),
                _ => return Err(DecodeError("a value has an unknown kind")),
            });
        }
        Ok(row)
    }

    fn update(&mut self) -> Result<Message, DecodeError> {
        let relation = self.int()?;
        let has_old = matches!(self.0.first(), Some(b'K' | b'O'));
        let old = if has_old {
            let is_key = self.kind_of_old()?;
            let row = self.row()?;
            Some(Old { is_key, row })
        } else {
            None
        };
        self.expect(b'N')?;
        let new = self.row()?;
        Ok(Message::Update { relation, old, new })
    }

    fn truncate(&mut self) -> Result<Message, DecodeError> {
        let (count, _options) = (self.int()?, self.byte()?);
        let mut relations = Vec::new();
        for _ in 0..count {
            relations.push(self.int()?);
        }
        Ok(Message::Truncate { relations })
    }

    fn logical(&mut self) -> Result<Message, DecodeError> {
        let (flags, _lsn) = (self.byte()?, self.long()?);
        let (prefix, content) = (self.name()?, self.bytes()?);
        Ok(Message::Logical {
            is_transactional: flags & 1 == 1,
            prefix,
            content,
        })
    }
}

const SHORT: DecodeError = DecodeError("it is shorter than it says");

#[cfg(test)]
mod tests {
    use super::*;

    /// One message of each kind, as the server sends it.
    fn samples() -> Vec<(Vec<u8>, Message)> {
        let long = |it: u64| it.to_be_bytes();
        let text = |it: &'static [u8]| Datum::Text(Bytes::from_static(it));
        let relation = Relation {
            id: 7,
            schema: "public".to_owned(),
            table: "outbox".to_owned(),
            columns: vec![Column {
                name: "id".to_owned(),
                is_key: true,
                of_type: 20,
            }],
        };
        let begin = Message::Begin {
            commit_lsn: 258,
            committed_at: 5,
        };
        let update = Message::Update {
            relation: 7,
            old: Some(Old {
                is_key: true,
                row: vec![text(b"4")],
            }),
            new: vec![text(b"5"), Datum::Unchanged, Datum::Null],
        };
        let logical = Message::Logical {
            is_transactional: true,
            prefix: "p".to_owned(),
            content: Bytes::from_static(b"{}"),
        };
        let delete = Message::Delete {
            relation: 7,
            old: Old {
                is_key: false,
                row: vec![text(b"")],
            },
        };
        let truncate = Message::Truncate { relations: vec![7] };
        let insert = Message::Insert {
            relation: 7,
            new: vec![text(b"4")],
        };
        vec![
            (
                [&b"B"[..], &long(258)[..], &long(5), b"\0\0\0\x09"].concat(),
                begin,
            ),
            (
                [&b"C\0"[..], &long(258)[..], &long(300), &long(5)].concat(),
                Message::Commit { end_lsn: 300 },
            ),
            (
                b"R\0\0\0\x07public\0outbox\0d\0\x01\x01id\0\0\0\0\x14\xff\xff\xff\xff".to_vec(),
                Message::Relation(relation),
            ),
            (b"I\0\0\0\x07N\0\x01t\0\0\0\x014".to_vec(), insert),
            (
                b"U\0\0\0\x07K\0\x01t\0\0\0\x014N\0\x03t\0\0\0\x015un".to_vec(),
                update,
            ),
            (b"D\0\0\0\x07O\0\x01t\0\0\0\0".to_vec(), delete),
            (b"T\0\0\0\x01\0\0\0\0\x07".to_vec(), truncate),
            (
                [&b"M\x01"[..], &long(258)[..], b"p\0\0\0\0\x02{}"].concat(),
                logical,
            ),
        ]
    }

    #[test]
    fn every_message_is_decoded() {
        for (bytes, message) in samples() {
            assert_eq!(decode(bytes.into()), Ok(message));
        }
    }

    #[test]
    fn a_message_that_is_cut_or_too_long_is_refused() {
        for (bytes, message) in samples() {
            for end in 0..bytes.len() {
                let cut = Bytes::copy_from_slice(&bytes[..end]);
                assert!(decode(cut).is_err(), "{message:?} up to {end}");
            }
            let longer = [&bytes[..], b"\0"].concat();
            assert!(decode(longer.into()).is_err(), "{message:?}");
        }
    }

    #[test]
    fn names_of_a_database_without_an_encoding_stop_nothing() {
        let logical = decode(Bytes::from_static(b"M\x01\0\0\0\0\0\0\0\0\xff\0\0\0\0\0"));
        assert!(matches!(logical, Ok(Message::Logical { prefix, .. }) if prefix == "\u{fffd}"));
    }

    #[test]
    fn lengths_and_counts_that_lie_are_refused() {
        for bytes in [
            &b"I\0\0\0\x07N\xff\xff"[..],
            b"I\0\0\0\x07N\0\x01t\xff\xff\xff\xff4",
            b"I\0\0\0\x07N\0\x01b\0\0\0\x014",
            b"T\xff\xff\xff\xff\0",
            b"X",
            b"",
        ] {
            assert!(decode(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_head_of_a_cut_message_names_its_table_or_prefix() {
        let row = head(Bytes::from_static(b"I\0\0\0\x07N\0\x01t"));
        assert!(matches!(
            row,
            Ok(Head::Row {
                relation: 7,
                change: Change::Insert,
            })
        ));
        let message = head(Bytes::from_static(b"M\x01\0\0\0\0\0\0\0\0hapax\0\x7f"));
        assert!(matches!(
            message,
            Ok(Head::Logical {
                is_transactional: true,
                prefix: Some(prefix),
            }) if prefix == "hapax"
        ));
        // The prefix is longer than what is left of the message.
        let message = head(Bytes::from_static(b"M\0\0\0\0\0\0\0\0\0hapax"));
        assert!(matches!(
            message,
            Ok(Head::Logical {
                is_transactional: false,
                prefix: None,
            })
        ));
        assert!(head(Bytes::from_static(b"R\0\0\0\x07")).is_err());
    }
}
