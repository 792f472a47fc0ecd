-- Writes the one row of the readiness check, which needs the cheapest real write.
INSERT INTO shop_probe (id, asked_at) VALUES (1, ?1)
ON CONFLICT (id) DO UPDATE SET asked_at = excluded.asked_at
