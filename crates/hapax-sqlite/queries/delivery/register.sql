-- Inserts a destination, or enables it if it exists.
INSERT INTO hapax_destination (name, first_opened_at, opened_at)
VALUES (?1, ?2, ?2)
ON CONFLICT (name) DO UPDATE SET
    opened_at = excluded.opened_at,
    disabled_at = NULL,
    disabled_reason = NULL
