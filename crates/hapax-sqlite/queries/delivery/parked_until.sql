-- Says up to which position the next so many (?4) parked deliveries of a part lie, for its owner alone.
-- Only here: the other store finds it out as it lets them go.
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
