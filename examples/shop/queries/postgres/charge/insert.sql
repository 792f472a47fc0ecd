-- Writes a charge, in the phase after the call to the payment provider.
INSERT INTO shop_charge (id, tenant, order_id, amount, currency, created_at, provider_key)
VALUES ($1, $2, $3, $4, $5, $6, $7)
