-- Schedules belong to the app whose code declares them; '' are those that were made at run time.

ALTER TABLE schedules RENAME COLUMN origin TO owner;
UPDATE schedules SET owner = '';
