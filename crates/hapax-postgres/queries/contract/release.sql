-- Lets the claimed key go without an answer.
SELECT hapax.release($1::text, $2::text, $3::text)::text
