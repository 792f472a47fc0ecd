-- Claims a key in the caller's transaction. Headers are returned as text, which every driver can
-- read.
-- Only here: the SQLite store has no SQL contract.
SELECT outcome, status, headers::text, body, extract(epoch FROM fresh_for)::float8 AS fresh_for
FROM hapax.claim(
    $1::text, $2::text, $3::text, $4::bytea, make_interval(secs => $5::float8), $6::text,
    make_interval(secs => $7::float8))
