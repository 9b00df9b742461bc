-- What outlives its time is found by that time.

CREATE INDEX pokes_by_time ON pokes (time);
CREATE INDEX onces_by_till ON onces (till);
