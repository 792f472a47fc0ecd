-- Whose a saga is.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- A tenant's own sagas, state by state: whoever sees no others looks at no others, and is told of none
-- by where a look ended.
CREATE INDEX saga_tenant ON hapax.saga (tenant, state, id) WHERE tenant IS NOT NULL;
