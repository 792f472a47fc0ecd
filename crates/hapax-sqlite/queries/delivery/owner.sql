-- Says which node holds a part.
-- Only here: the other store finds it out as it takes hold of the part.
SELECT node
FROM hapax_checkpoint
WHERE destination = ?1
