-- Disables a destination and records the reason.
UPDATE hapax_destination SET
    disabled_at = ?2,
    disabled_reason = ?3
WHERE name = ?1
