-- Writes one ledger entry per effect. Tests count the entries to check that each effect happens
-- exactly once.
INSERT INTO shop_ledger_entry (tenant, id, charge_id, kind, amount, source, excess, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
