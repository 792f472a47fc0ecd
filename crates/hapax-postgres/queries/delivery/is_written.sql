-- Divides by zero where a settlement ($3) of the epoch is written already, and what was sent behind it
-- fails with it. Another owner's number says nothing, under the same epoch neither. It looks at the
-- last few checkpoints of the part: a spill's has no number, and a settlement that comes late, when
-- others are written, may be one that needs none.
-- Only here: the other store finds it beside the epoch.
SELECT 1 / (count(*) = 0)::int4
FROM (
    SELECT epoch, settlement
    FROM hapax.checkpoint_log
    WHERE part = $1::text
    ORDER BY number DESC
    LIMIT 4
) AS last
WHERE epoch = $2::int8
  AND settlement >> 32 = $3::int8 >> 32
  AND settlement >= $3::int8
