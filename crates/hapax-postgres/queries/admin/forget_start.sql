-- Deletes where a destination starts, unless a relay has opened one of its partitions: the new
-- destination of that name has another start. The record was left by a relay that had the name in its
-- file.
DELETE FROM hapax.start
WHERE destination = $1::text AND NOT EXISTS (
    SELECT 1 FROM hapax.lease WHERE split_part(partition, '/', 1) = $1::text
)
