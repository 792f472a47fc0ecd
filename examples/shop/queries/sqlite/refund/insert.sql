-- Writes one row per refund, in the state pending. The row of the charge holds the sum of its
-- refunds.
INSERT INTO shop_refund (id, tenant, charge_id, amount, created_at, provider_key)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
