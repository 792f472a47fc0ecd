-- Reads a charge by id alone, and locks it until the commit. The refunds of a charge are read and
-- written under this lock, in later statements, which see what its previous holder has committed.
-- It is an update, because at a stricter isolation level than read committed a lock alone does not
-- make a concurrent transaction fail, whose snapshot is older than that commit.
UPDATE shop_charge
SET amount = amount
WHERE id = $1
RETURNING tenant, amount, currency
