-- Writes down why a destination takes nothing any more.
UPDATE hapax.destination SET
    disabled_at = $2::timestamptz,
    disabled_reason = $3::text
WHERE name = $1::text
