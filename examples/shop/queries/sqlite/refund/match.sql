-- Finds the refunds of a charge that a report can mean: by the provider's id, by the shop's id, and
-- by the key under which the shop requested the refund.
SELECT id, amount, state, created_at
FROM shop_refund
WHERE charge_id = ?1 AND (provider_ref = ?2 OR id = ?2 OR provider_key = ?3)
ORDER BY id
