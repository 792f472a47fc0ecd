-- Reads a charge by id alone, and locks it until the commit. The refunds of a charge are read and
-- written under this lock, in later statements, which see what its previous holder has committed.
SELECT tenant, amount, currency
FROM shop_charge
WHERE id = $1
FOR UPDATE
