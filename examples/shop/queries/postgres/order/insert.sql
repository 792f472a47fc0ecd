-- Writes the orders of a group with one statement: each parameter is an array with the values of
-- one column. The operation is single-shot. The responses are built before, so each row holds
-- exactly what its response contains.
INSERT INTO shop_order
    (tenant, id, customer_id, amount, currency, note, version, created_at, updated_at)
SELECT tenant, id, customer_id, amount, currency, note, 1, created_at, created_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
    AS placed (tenant, id, customer_id, amount, currency, note, created_at)
