//! Tables and views of the database, as numbered migrations: each brings a store from one version to the next. A
//! released migration is never changed; new columns come as another one.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::{Store, StoreError, rows, seal};

/// Migrations; the number of the last is the version of a store.
const MIGRATIONS: &[&str] =
    &[include_str!("1.sql"), include_str!("2.sql"), include_str!("3.sql"), include_str!("4.sql")];

/// The version that this program writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// `iowh`, in the header of the database: the mark of this program.
const APPLICATION: i64 = 0x696f_7768;

fn pragma(store: &Store, name: &str) -> Result<i64, StoreError> {
    store.database.pragma_query_value(None, name, |row| row.get(0)).map_err(store.failed("read the version of"))
}

/// Whether a store has the version that this program writes, and its tables.
pub(super) fn is_current(store: &Store) -> Result<bool, StoreError> {
    if check(store)? != VERSION {
        return Ok(false);
    }
    check_text(store).map(|()| true)
}

/// Brings a store to the newest version, if it is not.
pub(super) fn migrate(store: &mut Store) -> Result<(), StoreError> {
    if check(store)? == VERSION {
        return check_text(store);
    }
    // One process at a time changes the mode of the log and the tables; the others find it done.
    let lock = store.lock_file()?;
    let path = store.directory.join(super::LOCK);
    lock.lock().map_err(|source| StoreError::File { action: "lock", path, source })?;
    let failed = store.failed("set up");
    store.database.pragma_update(None, "journal_mode", "WAL").map_err(&failed)?;
    let transaction = store.transaction("set up")?;
    let from = check(store)?;
    for migration in MIGRATIONS.iter().skip(from as usize) {
        transaction.execute_batch(migration).map_err(&failed)?;
    }
    if from < SEALED_SINCE {
        let numbers = || {
            let mut query = transaction.prepare("SELECT number FROM run ORDER BY number")?;
            query.query_map([], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()
        };
        for number in numbers().map_err(&failed)? {
            let run = rows::by_number(&transaction, number).map_err(&failed)?;
            seal::seal(&transaction, &[run], i64::MAX).map_err(&failed)?;
        }
        seal::seal(&transaction, &[], 0).map_err(&failed)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(&failed)?;
    transaction.pragma_update(None, "user_version", VERSION).map_err(&failed)?;
    transaction.commit().map_err(&failed)?;
    Ok(())
}

/// Rows have seals since this version; older ones are sealed as they are found.
const SEALED_SINCE: i64 = 3;

/// Fails if tables, triggers or views are not as this program makes them. Others may be among them.
fn check_text(store: &Store) -> Result<(), StoreError> {
    let texts = |database: &Connection| {
        let mut query =
            database.prepare("SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema")?;
        query.query_map([], |row| row.get(0))?.collect::<Result<BTreeSet<String>, _>>()
    };
    let expected = || {
        let fresh = Connection::open_in_memory()?;
        MIGRATIONS.iter().try_for_each(|migration| fresh.execute_batch(migration))?;
        texts(&fresh)
    };
    let failed = store.failed("read the tables of");
    let (expected, found) = (expected().map_err(&failed)?, texts(&store.database).map_err(&failed)?);
    match expected.difference(&found).next() {
        None => Ok(()),
        Some(missing) => {
            let what = format!("it lacks: {}", missing.lines().next().unwrap_or_default());
            Err(StoreError::Damaged { path: store.database_path(), what })
        }
    }
}

/// The version of a store, if it is one that can be opened.
fn check(store: &Store) -> Result<i64, StoreError> {
    let path = store.database_path();
    let version = pragma(store, "user_version")?;
    let application = pragma(store, "application_id")?;
    if application != APPLICATION {
        let tables = "SELECT count(*) FROM sqlite_schema";
        let tables: i64 =
            store.database.query_row(tables, [], |row| row.get(0)).map_err(store.failed("read the tables of"))?;
        if tables > 0 || version != 0 {
            return Err(StoreError::Foreign { path, what: "another program made this database".to_owned() });
        }
    }
    if !(0..=VERSION).contains(&version) {
        return Err(StoreError::Newer { path, found: version, known: VERSION });
    }
    Ok(version)
}
