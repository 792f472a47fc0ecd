-- Counts attempts before they are made, so that an event which kills its relay runs out of them. One
-- that was blocked has its turn now: whoever begins it ends what held it up in the same settlement.
UPDATE hapax.delivery AS delivery SET
    attempt = begun.number,
    begun_at = $4::timestamptz,
    state = CASE state WHEN 'blocked' THEN 'retrying' ELSE state END
FROM unnest($2::int8[], $3::int4[]) AS begun (position, number)
WHERE delivery.destination = $1::text
  AND delivery.position = begun.position
  AND delivery.state IN ('scheduled', 'retrying', 'blocked')
