-- Keeps a previous token of a polling endpoint ($1), which is about to have one more than its row has
-- room for. Of the one in the row, if it is valid at a time ($3), and the current one, which is valid
-- until $2 from now on, it is the one that ends first.
INSERT INTO hapax.poll_previous_token AS kept (endpoint, token, valid_until)
SELECT name,
       CASE WHEN old_token_until > $2::timestamptz THEN token ELSE old_token END,
       least(old_token_until, $2::timestamptz)
FROM hapax.poll_endpoint
WHERE name = $1::text AND old_token_until > $3::timestamptz
ON CONFLICT (endpoint, token) DO UPDATE
SET valid_until = greatest(kept.valid_until, excluded.valid_until)
