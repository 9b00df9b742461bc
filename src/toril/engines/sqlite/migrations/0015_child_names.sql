-- Children by their names, in the order in which they were added to their parent. NULL: it is not known.

ALTER TABLE children ADD COLUMN number INTEGER;
ALTER TABLE children ADD COLUMN name TEXT;
