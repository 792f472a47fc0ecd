-- Counts an attempt before it is made, so that an event which kills its relay runs out of them. One
-- that was blocked has its turn now: whoever begins it ends what held it up in the same settlement.
UPDATE hapax_delivery SET
    attempt = ?3,
    begun_at = ?4,
    state = CASE state WHEN 'blocked' THEN 'retrying' ELSE state END
WHERE destination = ?1 AND position = ?2 AND state IN ('scheduled', 'retrying', 'blocked')
