-- Appends an event. The id comes from the writer's counter, so ids increase in commit order. The
-- number of the transaction (?12) is the id of its first event.
INSERT INTO hapax_outbox_event
    (id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
     created_at, available_at, xid)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
