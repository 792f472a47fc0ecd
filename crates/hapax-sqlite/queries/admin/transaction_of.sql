-- Returns the transaction that wrote an event. An event that an earlier version wrote has its own.
SELECT coalesce(xid, id)
FROM hapax_outbox_event
WHERE id = ?1
