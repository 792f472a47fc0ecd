-- Stores the response under the claimed key, and returns its retention.
-- Only here: the SQLite store has no SQL contract.
SELECT extract(epoch FROM hapax.complete(
    $1::text, $2::text, $3::text, $4::int4, $5::text::jsonb, $6::bytea))::float8
