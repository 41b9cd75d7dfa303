-- One row for each run, in the order of recording. Numbers of 64 bits without sign (seeds) are kept as SQLite's signed
-- ones with the same bits. What `--blind` leaves out is NULL.
CREATE TABLE run (
    number INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    label TEXT NOT NULL,
    job TEXT NOT NULL,
    job_resolved TEXT,
    place TEXT,
    simulated INTEGER NOT NULL CHECK (simulated IN (0, 1)),
    machine TEXT CHECK (machine IS NULL OR json_valid(machine)),
    machine_hash TEXT NOT NULL,
    policies TEXT CHECK (policies IS NULL OR json_valid(policies)),
    seed INTEGER NOT NULL,
    event_hash TEXT,
    started_ns INTEGER NOT NULL,
    finished_ns INTEGER NOT NULL,
    session TEXT NOT NULL,
    block INTEGER NOT NULL,
    position INTEGER NOT NULL,
    order_seed INTEGER NOT NULL,
    session_size INTEGER NOT NULL,
    warm_up INTEGER NOT NULL CHECK (warm_up IN (0, 1)),
    layers TEXT CHECK (layers IS NULL OR json_valid(layers)),
    warnings TEXT NOT NULL CHECK (json_valid(warnings)),
    iowhy_version TEXT NOT NULL,
    blind INTEGER NOT NULL CHECK (blind IN (0, 1))
) STRICT;

CREATE INDEX run_by_label ON run (label, started_ns);
CREATE INDEX run_by_start ON run (started_ns);

-- Measurements of a run. NULL is a value that was no finite number.
CREATE TABLE metric (
    run INTEGER NOT NULL REFERENCES run (number),
    name TEXT NOT NULL,
    value REAL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

-- Parquet files that belong to runs.
CREATE TABLE data (
    run INTEGER NOT NULL REFERENCES run (number),
    kind TEXT NOT NULL CHECK (kind IN ('events', 'samples')),
    hash TEXT NOT NULL,
    rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (run, kind)
) STRICT, WITHOUT ROWID;

CREATE INDEX data_by_hash ON data (hash);

-- Names that users give to runs afterwards; the only thing that may be taken back.
CREATE TABLE tag (
    run INTEGER NOT NULL REFERENCES run (number),
    name TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tag_by_name ON tag (name);

CREATE TRIGGER run_stays BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'runs are never removed'); END;
CREATE TRIGGER run_is_kept BEFORE UPDATE ON run BEGIN SELECT RAISE(ABORT, 'runs are never changed'); END;
CREATE TRIGGER metric_stays BEFORE DELETE ON metric BEGIN SELECT RAISE(ABORT, 'runs are never removed'); END;
CREATE TRIGGER metric_is_kept BEFORE UPDATE ON metric BEGIN SELECT RAISE(ABORT, 'runs are never changed'); END;
CREATE TRIGGER data_stays BEFORE DELETE ON data BEGIN SELECT RAISE(ABORT, 'runs are never removed'); END;
CREATE TRIGGER data_is_kept BEFORE UPDATE ON data BEGIN SELECT RAISE(ABORT, 'runs are never changed'); END;

-- Two runs as version 1 recorded them.
PRAGMA application_id = 1768912744;
PRAGMA user_version = 1;
INSERT INTO run VALUES (1, '00000000000000a1', 'old', 'dd if=a', NULL, 'sim:linux-6.18', 1, '{"device":"nvme"}', '0123456789abcdef', NULL, -1, '00000000000000ff', 1000, 2000, 's', 0, 0, 1, 2, 0, NULL, '[]', '0.1.0', 0);
INSERT INTO run VALUES (2, '00000000000000a2', 'old', 'dd if=a', NULL, 'sim:linux-6.18', 1, '{"device":"nvme"}', '0123456789abcdef', NULL, 2, '00000000000000fe', 3000, 4000, 's', 1, 0, 1, 2, 0, NULL, '["noise"]', '0.1.0', 0);
INSERT INTO metric VALUES (1, 'elapsed_s', 1.5), (2, 'elapsed_s', 2.5);
INSERT INTO tag VALUES (2, 'golden');
