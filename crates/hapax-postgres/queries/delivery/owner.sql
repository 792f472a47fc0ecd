-- Whose a destination is: whoever waits for its death looks whether this changes.
SELECT epoch, written_at
FROM hapax.checkpoint
WHERE destination = $1::text
