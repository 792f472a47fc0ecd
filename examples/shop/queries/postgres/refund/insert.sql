-- One row per refund, pending at first; the charge holds their sum.
INSERT INTO shop_refund (id, tenant, charge_id, amount, created_at, provider_key)
VALUES ($1, $2, $3, $4, $5, $6)
