-- Appends events in the order in which they were emitted: ids are drawn in that order.
INSERT INTO hapax.outbox_event
    (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
     created_at, available_at)
SELECT hapax.shard_of(aggregate_type, aggregate_id), event_id::uuid, type, tenant, aggregate_type,
       aggregate_id, sequence, payload, headers, created_at, available_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int8[], $7::text[],
            $8::text[], $9::timestamptz[], $10::timestamptz[])
     AS event (event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
               created_at, available_at)
