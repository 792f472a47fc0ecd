-- Gives back what a checkout had set aside and did not ship.
UPDATE shop_stock SET reserved = reserved - $2
WHERE sku = $1
