-- Disables a destination and records the reason.
UPDATE hapax.destination SET
    disabled_at = $2::timestamptz,
    disabled_reason = $3::text
WHERE name = $1::text
