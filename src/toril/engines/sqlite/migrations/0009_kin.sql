-- A parent that failed for good still knows what its children returned: under the key that it had.

ALTER TABLE letters ADD COLUMN kin INTEGER;
