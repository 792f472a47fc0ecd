-- Whether the transaction that has the key runs another payload than that of the payload lock $4.
-- The lock is taken for this statement only, and shows that no other transaction has it.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT CASE
           WHEN pg_try_advisory_xact_lock($4::int8)
           THEN hapax.runs_other_payload(
               hapax.key_lock($1::text, $2::text, $3::text), $4::int8)
           ELSE false
       END AS is_other
