-- Writes a user. Changes nothing if the folded address is taken. If a concurrent transaction is
-- taking it, the statement waits for that transaction.
INSERT INTO shop_user (tenant, email_folded, id, email, name, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, email_folded) DO NOTHING
