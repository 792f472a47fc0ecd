-- Deletes a refund that the provider has not made under this id. Changes nothing if it is done.
DELETE FROM shop_refund
WHERE id = $1 AND tenant = $2 AND state = 'pending'
