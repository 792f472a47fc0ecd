-- Counts an attempt before it is made, so that an event that crashes its relay uses up its
-- attempts. A blocked delivery becomes a retry: its relay settles the delivery that blocked it in
-- the same settlement.
UPDATE hapax_delivery SET
    attempt = ?3,
    begun_at = ?4,
    state = CASE state WHEN 'blocked' THEN 'retrying' ELSE state END
WHERE destination = ?1 AND position = ?2 AND state IN ('scheduled', 'retrying', 'blocked')
