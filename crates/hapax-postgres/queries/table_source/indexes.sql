-- Lists the indexes of a table: their columns in order, whether they are unique, and whether they
-- are partial.
-- Only here: the SQLite store has no table sources.
SELECT ARRAY(
           SELECT attname::text
           FROM unnest(indkey::int2[]) WITH ORDINALITY AS place (number, nth)
           LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = place.number
           WHERE nth <= indnkeyatts
           ORDER BY nth
       ) AS columns,
       indisunique AND indimmediate AND indisvalid AND indpred IS NULL AND indexprs IS NULL
           AS is_unique,
       indisvalid AND indpred IS NOT NULL AS is_partial
FROM pg_index
WHERE indrelid = $1::int4::oid
