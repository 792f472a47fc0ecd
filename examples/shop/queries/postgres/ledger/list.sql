-- Lists all ledger entries of a tenant, one keyset page at a time.
SELECT id, charge_id, kind, amount, source, excess, created_at
FROM shop_ledger_entry
WHERE tenant = $1 AND id > $2
ORDER BY id
LIMIT $3
