-- Returns the position of the last of the next ?4 parked deliveries of a partition, if the epoch
-- still owns it.
-- Only here: the PostgreSQL store finds it in the statement that unblocks them.
SELECT max(position)
FROM (
    SELECT position
    FROM hapax_delivery
    WHERE destination = ?1
      AND state IN ('scheduled', 'retrying', 'blocked')
      AND position > ?3
      AND EXISTS (SELECT 1 FROM hapax_checkpoint WHERE destination = ?1 AND epoch = ?2)
    ORDER BY position
    LIMIT ?4
)
