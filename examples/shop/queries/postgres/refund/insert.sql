-- Writes a refund that the shop requests, in the state pending. From then on its amount is reserved.
INSERT INTO shop_refund (id, tenant, charge_id, amount, created_at, provider_key)
VALUES ($1, $2, $3, $4, $5, $6)
