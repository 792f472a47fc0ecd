-- Sets some of it aside, unless there is less; two checkouts at once cannot both take the last.
UPDATE shop_stock SET reserved = reserved + ?2
WHERE sku = ?1 AND total - reserved >= ?2
