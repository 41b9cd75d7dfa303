-- Sums over what a row holds, and what belongs to it, so that a flipped bit is noticed when it is read.
CREATE TABLE seal (
    kind TEXT NOT NULL CHECK (kind IN ('run', 'calibration')),
    number INTEGER NOT NULL,
    sum TEXT NOT NULL,
    PRIMARY KEY (kind, number)
) STRICT, WITHOUT ROWID;
