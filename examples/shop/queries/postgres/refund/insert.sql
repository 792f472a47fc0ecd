-- One row per refund; the charge holds their sum.
INSERT INTO shop_refund (id, tenant, charge_id, amount, created_at)
VALUES ($1, $2, $3, $4, $5)
