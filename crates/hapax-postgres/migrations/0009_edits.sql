-- What an operator has a destination offered in place of an event's own words.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- In the words of the event's columns of these names, encrypted where those are. The event itself stays
-- as it was committed: other destinations are offered that.
ALTER TABLE hapax.delivery
    ADD COLUMN payload text,
    ADD COLUMN headers text;
