-- Says whether a frontier stands in this database, if that is in the history which was seen ($3): one
-- that was read and never written down may be of a history that this database does not have.
-- Only here: the other store is one file.
SELECT hapax.history() = $3::text AND EXISTS (
    SELECT 1
    FROM hapax.position
    WHERE frontier = $1::int8 AND snapshot = $2::text
)
