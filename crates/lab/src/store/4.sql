-- How a run was asked for, as JSON with a version of its own; NULL in rows of earlier versions, which have it among their
-- policies, and in blind ones.
ALTER TABLE run ADD COLUMN manifest TEXT CHECK (manifest IS NULL OR json_valid(manifest));
