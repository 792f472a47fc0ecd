-- Lets a part go: nobody holds it, and its epoch stays until the next owner comes.
UPDATE hapax_checkpoint SET node = NULL
WHERE destination = ?1 AND epoch = ?2
