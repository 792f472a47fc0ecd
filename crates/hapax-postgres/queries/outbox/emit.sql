-- Appends events in the order in which they were emitted, and draws their ids in that order. The
-- arrays are unnested side by side, row by row, without intermediate storage.
INSERT INTO hapax.outbox_event
    (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
     created_at, available_at)
SELECT hapax.shard_of(aggregate_type, aggregate_id, event_id::uuid), event_id::uuid, type, tenant,
       aggregate_type, aggregate_id, sequence, payload, headers, created_at, available_at
FROM (SELECT unnest($1::text[]) AS event_id, unnest($2::text[]) AS type,
             unnest($3::text[]) AS tenant, unnest($4::text[]) AS aggregate_type,
             unnest($5::text[]) AS aggregate_id, unnest($6::int8[]) AS sequence,
             unnest($7::text[]) AS payload, unnest($8::text[]) AS headers,
             unnest($9::timestamptz[]) AS created_at, unnest($10::timestamptz[]) AS available_at)
     AS event
