-- Charges once under a key: whoever comes again with it changes nothing.
INSERT INTO shop_provider_charge (key, id, amount, currency, created_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (key) DO NOTHING
