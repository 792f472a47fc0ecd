-- Lets a part go: nobody holds it, and its epoch stays until the next owner comes.
UPDATE hapax.lease SET node = NULL
WHERE part = $1::text AND epoch = $2::int8
RETURNING 1
