-- Marks a refund as done after the provider has made it. A second call changes nothing.
UPDATE shop_refund
SET state = 'done', provider_ref = ?3
WHERE id = ?1 AND tenant = ?2 AND state = 'pending'
