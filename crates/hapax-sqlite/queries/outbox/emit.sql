-- Appends an event. The id comes from the writer's counter, so ids increase in commit order.
INSERT INTO hapax_outbox_event
    (id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
     created_at, available_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
