-- What the provider has charged, in the phase that writes it down.
INSERT INTO shop_charge (id, tenant, order_id, amount, currency, created_at, provider_key)
VALUES ($1, $2, $3, $4, $5, $6, $7)
