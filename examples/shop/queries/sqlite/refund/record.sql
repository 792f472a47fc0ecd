-- Writes a refund that the shop has not requested. Changes nothing if another transaction has
-- recorded it, which can happen only if the charge is unknown and so cannot be locked.
INSERT INTO shop_refund (id, tenant, charge_id, amount, created_at, provider_ref, state)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'done')
ON CONFLICT (charge_id, provider_ref) DO NOTHING
