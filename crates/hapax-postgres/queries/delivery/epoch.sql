-- Takes hold of a part for its owner, before anything is written in its name: the lock stands in the
-- row itself and leaves no version behind. For anybody else it divides by zero, and what was sent
-- behind it fails with it.
SELECT 1 / coalesce((
    SELECT (epoch = $2::int8)::int4
    FROM hapax.lease
    WHERE part = $1::text
    FOR NO KEY UPDATE
), 0)
