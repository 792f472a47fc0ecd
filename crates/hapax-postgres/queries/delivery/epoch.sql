-- Takes hold of a destination for its owner, before anything is written in its name. For anybody
-- else it divides by zero, and what was sent behind it fails with it.
SELECT 1 / coalesce((
    SELECT (epoch = $2::int8)::int4
    FROM hapax.checkpoint
    WHERE destination = $1::text
    FOR NO KEY UPDATE
), 0)
