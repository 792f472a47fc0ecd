-- Returns whether a delivery needs an event. An operator may have made one due again since the batch
-- was found.
-- Only here: the PostgreSQL store finds and deletes them in one statement.
SELECT EXISTS (
    SELECT 1
    FROM hapax_delivery INDEXED BY hapax_delivery_live
    WHERE position = ?1
      AND state IN ('scheduled', 'retrying', 'blocked', 'dead')
)
