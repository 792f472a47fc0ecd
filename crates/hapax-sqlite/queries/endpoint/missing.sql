-- Returns whether the event at a position (?1), with its id (?2), is in the outbox.
SELECT EXISTS (SELECT 1 FROM hapax_outbox_event WHERE id = ?1 AND event_id = ?2) AS is_there
