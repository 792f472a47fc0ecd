-- The seeded bug `no-fence`: locks the lease of a partition for any epoch and any history.
-- Only here: the SQLite store removes the clause from the correct statement.
SELECT (epoch = $2::int8 OR $3::int8[] IS NULL OR $4::text[] IS NULL OR $5::text = $6::text
        OR $7::int8 + $8::int8 + $9::int8 = $10::int8)::int4
FROM hapax.lease
WHERE partition = $1::text
FOR NO KEY UPDATE
