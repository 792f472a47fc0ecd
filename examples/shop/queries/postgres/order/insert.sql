-- Single-shot, a column each: the orders of a whole group are one statement. The answer was built
-- before, so each row is exactly what its answer says.
INSERT INTO shop_order
    (tenant, id, customer_id, amount, currency, note, version, created_at, updated_at)
SELECT tenant, id, customer_id, amount, currency, note, 1, created_at, created_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
    AS placed (tenant, id, customer_id, amount, currency, note, created_at)
