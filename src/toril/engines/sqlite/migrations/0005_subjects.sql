-- Whom a job was about, where its producer said so.

ALTER TABLE runs ADD COLUMN subject TEXT;
