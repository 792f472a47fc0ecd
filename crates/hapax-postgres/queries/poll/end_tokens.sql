-- Deletes the previous tokens of a polling endpoint ($1) that are kept beside its row and have ended at a
-- time ($3); all of them if the current token is not to be valid until a time ($2), but ends at once.
DELETE FROM hapax.poll_previous_token
WHERE endpoint = $1::text
  AND ($2::timestamptz IS NULL OR valid_until <= $3::timestamptz)
