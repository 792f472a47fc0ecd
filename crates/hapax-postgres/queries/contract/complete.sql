-- Stores the answer under the claimed key: how long it stands.
-- Only here: the contract of the other store is its library.
SELECT extract(epoch FROM hapax.complete(
    $1::text, $2::text, $3::text, $4::int4, $5::text::jsonb, $6::bytea))::float8
