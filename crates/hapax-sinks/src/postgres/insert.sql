-- Accepts a batch of events and inserts those that are new, in one statement and so in one
-- transaction. The inbox is written in the order of the ids, so that two relays with the same
-- events wait for each other without a deadlock. The table is written in the order of the batch.
-- The unique key of the inbox is not named here, because in a receiver's database that is not
-- upgraded yet it does not contain the source.
WITH offered AS MATERIALIZED (
    SELECT event_id, hash, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
           created_at, number
    FROM unnest($3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[],
                $9::int8[], $10::{payloads}[], $11::text[], $12::text[])
         WITH ORDINALITY
         AS offered (event_id, hash, type, tenant, aggregate_type, aggregate_id, sequence, payload,
                     headers, created_at, number)
), taken AS (
    INSERT INTO hapax.inbox_message
        (consumer, message_id, source, payload_hash, received_at, processed_at, result)
    SELECT $1::text, event_id, $2::text, hash, statement_timestamp(), clock_timestamp(), 'inserted'
    FROM offered
    ORDER BY event_id
    ON CONFLICT DO NOTHING
    RETURNING message_id
), written AS (
    INSERT INTO {table} ({columns})
    SELECT {values}
    FROM offered
    JOIN taken ON taken.message_id = offered.event_id
    ORDER BY number
)
SELECT message_id
FROM taken
