-- The local provider's charge, in the transaction of the request that asked for it.
INSERT INTO shop_charge (id, tenant, order_id, amount, currency, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
