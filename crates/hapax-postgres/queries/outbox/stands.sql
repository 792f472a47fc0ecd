-- Returns whether a frontier is stored in this database, if the database is still in the history
-- that was seen ($3): as the position of a partition, or as the committed one of a polling endpoint.
-- A frontier that was read and never stored may be of a history that this database does not have.
-- Only here: the SQLite store is one file.
SELECT hapax.history() = $3::text AND (EXISTS (
    SELECT 1
    FROM hapax.position
    WHERE frontier = $1::int8 AND snapshot = $2::text
) OR EXISTS (
    SELECT 1
    FROM hapax.poll_endpoint
    WHERE frontier = $1::int8 AND snapshot = $2::text
))
