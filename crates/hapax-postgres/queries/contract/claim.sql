-- Takes a key for the transaction of the caller; headers come as text, which every driver can read.
-- Only here: the contract of the other store is its library.
SELECT outcome, status, headers::text, body, extract(epoch FROM fresh_for)::float8
FROM hapax.claim(
    $1::text, $2::text, $3::text, $4::bytea, make_interval(secs => $5::float8), $6::text,
    make_interval(secs => $7::float8))
