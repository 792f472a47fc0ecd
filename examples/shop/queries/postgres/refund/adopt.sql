-- Gives a refund that a webhook has reported the key under which the shop requested it.
UPDATE shop_refund
SET provider_key = $2
WHERE id = $1
