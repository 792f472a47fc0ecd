-- Emits an event whose payload is JSON. A time is passed in milliseconds, which no driver rounds.
-- Only here: the SQLite store has no SQL contract.
SELECT hapax.emit(
    $1::text, $2::text, $3::text, $4::text, $5::int8, $6::text::jsonb, $7::text,
    timestamptz 'epoch' + $8::int8 * interval '1 millisecond')::text
