-- Emits an event whose payload is not JSON, with its media type.
-- Only here: the SQLite store has no SQL contract.
SELECT hapax.emit_bytes(
    $1::text, $2::bytea, $9::text, $3::text, $4::text, $5::int8, $6::text::jsonb, $7::text,
    timestamptz 'epoch' + $8::int8 * interval '1 millisecond')::text
