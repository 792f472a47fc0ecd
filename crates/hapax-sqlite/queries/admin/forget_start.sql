-- Deletes where a destination starts, unless a relay has opened one of its partitions: the new
-- destination of that name has another start. The record is of a removed destination, or was left by
-- a relay that had the name in its file.
DELETE FROM hapax_start
WHERE destination = ?1 AND NOT EXISTS (
    SELECT 1
    FROM hapax_checkpoint
    WHERE substr(hapax_checkpoint.destination, 1,
                 instr(hapax_checkpoint.destination || '/', '/') - 1) = ?1
)
