-- Lets the claimed key go without an answer.
-- Only here: the contract of the other store is its library.
SELECT hapax.release($1::text, $2::text, $3::text)::text
