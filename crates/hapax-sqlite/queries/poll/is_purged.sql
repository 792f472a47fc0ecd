-- Returns whether events after a position may have been purged.
SELECT last > ?1 AS is_purged
FROM hapax_outbox_purged
