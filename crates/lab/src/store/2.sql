-- What comparisons of equal runs said of a machine.
CREATE TABLE calibration (
    number INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    metric TEXT NOT NULL,
    machine_hash TEXT NOT NULL,
    design TEXT NOT NULL,
    runs INTEGER NOT NULL,
    per_side INTEGER NOT NULL,
    comparisons INTEGER NOT NULL,
    false_alarms INTEGER NOT NULL,
    false_alarm_low REAL,
    false_alarm_high REAL,
    detectable_pct REAL,
    created_ns INTEGER NOT NULL,
    details TEXT NOT NULL CHECK (json_valid(details)),
    UNIQUE (job, metric, design, machine_hash, created_ns)
) STRICT;

CREATE TRIGGER calibration_stays BEFORE DELETE ON calibration
BEGIN SELECT RAISE(ABORT, 'calibrations are never removed'); END;
CREATE TRIGGER calibration_is_kept BEFORE UPDATE ON calibration
BEGIN SELECT RAISE(ABORT, 'calibrations are never changed'); END;

-- For whoever opens the file without iowhy: a metric in each row, with what is known of its run.
CREATE VIEW measurement AS
SELECT run.run_id, run.label, run.job, run.place, run.simulated, run.machine_hash, run.seed, run.started_ns,
    run.session, run.block, run.position, metric.name AS metric, metric.value
FROM run JOIN metric ON metric.run = run.number
WHERE run.warm_up = 0;

-- The same for data files: the path is that within the directory of the store.
CREATE VIEW file AS
SELECT run.run_id, run.label, run.started_ns, run.warm_up, data.kind,
    'data/' || data.hash || '.parquet' AS path, data.rows, data.bytes
FROM run JOIN data ON data.run = run.number;

CREATE VIEW tagged AS
SELECT tag.name AS tag, run.run_id, run.label, run.started_ns FROM tag JOIN run ON run.number = tag.run;
