-- Reads the events between two positions (?1, ?2) in order, with whether each may belong to one
-- request: it has the short hash of the request's key (?3) in a header, or has no key and was
-- written by the request's transaction (?4). The caller stops after a number of events.
SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at, coalesce(xid, id) AS wrote, octet_length(payload) AS payload_bytes,
       (coalesce(instr(headers, ?3) > 0, FALSE)
        OR coalesce(xid, id) = ?4 AND instr(headers, '"idempotency_key_hash"') = 0)
           AND (?5 IS NULL OR tenant = ?5) IS TRUE AS fits
FROM hapax_outbox_event
WHERE id >= ?1 AND id < ?2
ORDER BY id
