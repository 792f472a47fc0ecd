-- Gives up a partition. No node owns it then; the epoch stays until the next owner raises it.
UPDATE hapax.lease SET node = NULL
WHERE partition = $1::text AND epoch = $2::int8
RETURNING 1
