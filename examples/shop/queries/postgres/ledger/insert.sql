-- The oracle for "exactly once": one entry per effect.
INSERT INTO shop_ledger_entry (tenant, id, charge_id, kind, amount, source, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
