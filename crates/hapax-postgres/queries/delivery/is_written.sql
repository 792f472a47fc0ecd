-- Divides by zero if a settlement ($3) of the epoch is written already, so that the later
-- statements of the pipeline fail. A number of another owner does not count, even under the same
-- epoch. The query reads the last few checkpoints of the partition, because that of a spill has no
-- number. A settlement that is repeated after later ones may be one that writes no checkpoint, so
-- higher numbers count too.
-- Only here: the SQLite store reads it together with the epoch.
SELECT 1 / (count(*) = 0)::int4
FROM (
    SELECT epoch, settlement
    FROM hapax.checkpoint_log
    WHERE partition = $1::text
    ORDER BY number DESC
    LIMIT 4
) AS last
WHERE epoch = $2::int8
  AND settlement >> 32 = $3::int8 >> 32
  AND settlement >= $3::int8
