//! Parquet files of a store: written under a temporary name, synced, and renamed to the hash of their bytes.
//!
//! A table is a list of columns with a name and a type, and rows come as columns of values. Values of a group of rows
//! are gathered in memory ([`GROUP_ROWS`]), so that memory is bounded however long a run is. Pages are compressed with
//! zstd at its fastest level; repeated strings and numbers are in dictionaries, which Parquet does by itself.
//!
//! The format: <https://parquet.apache.org/docs/file-format/>.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iowhy_stack::trace::Trace;
use iowhy_text::diagnose::Problems;
use iowhy_trace::format::trace_parquet;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::{Store, StoreError};

pub(super) const GROUP_ROWS: usize = 1 << 16;

/// End of the names of files that are being written.
pub(super) const TEMPORARY: &str = ".tmp";

/// Kind of a data file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Everything that happened.
    Events,
    /// The calls, or some of them.
    Samples,
}

impl Kind {
    /// As the database has it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Events => "events",
            Kind::Samples => "samples",
        }
    }

    pub fn parse(word: &str) -> Option<Kind> {
        [Kind::Events, Kind::Samples].into_iter().find(|kind| kind.word() == word)
    }
}

/// A finished data file that no run refers to yet. While it is held, it is not swept away.
#[derive(Clone, Debug)]
pub struct DataFile {
    kind: Kind,
    hash: String,
    rows: u64,
    bytes: u64,
    _lock: Arc<File>,
}

impl DataFile {
    /// One that another store had, and this one has by now.
    pub(super) fn adopted(file: &super::StoredFile, lock: &Arc<File>) -> DataFile {
        DataFile {
            kind: file.kind,
            hash: file.hash.clone(),
            rows: file.rows,
            bytes: file.bytes,
            _lock: Arc::clone(lock),
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Hash of its bytes.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A column of whole numbers or of words.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Whole numbers, one in each row.
    Number,
    /// Whole numbers, or nothing.
    MaybeNumber,
    /// Words, or nothing.
    MaybeWord,
}

/// A value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Nothing.
    None,
    Number(i64),
    Word(&'static str),
}

/// Values of a column that are not yet written.
#[derive(Debug, Default)]
struct Gathered {
    numbers: Vec<i64>,
    words: Vec<&'static str>,
    /// For each row whether there is a value.
    levels: Vec<i16>,
}

/// A data file that is being written.
pub(super) struct Draft {
    kind: Kind,
    path: PathBuf,
    folder: PathBuf,
    lock: Arc<File>,
    columns: &'static [(&'static str, Type)],
    gathered: Vec<Gathered>,
    gathered_rows: usize,
    rows: u64,
    writer: Option<SerializedFileWriter<Hashing>>,
    /// The error; nothing is written afterwards.
    failure: Option<StoreError>,
}

/// A file whose bytes are hashed as they are written.
struct Hashing {
    file: File,
    hash: blake3::Hasher,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Tells drafts of one process apart.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

impl Drop for Draft {
    fn drop(&mut self) {
        // One that was finished has another name by now; of any other nothing is needed.
        if self.writer.take().is_some() || self.failure.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Draft {
    /// A file with these columns.
    pub(super) fn new(
        store: &Store,
        kind: Kind,
        columns: &'static [(&'static str, Type)],
    ) -> Result<Draft, StoreError> {
        let lock = store.writing()?;
        let folder = store.data_directory();
        let nr = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{}-{nr}{TEMPORARY}", kind.word(), std::process::id()));
        // A removed folder is made again.
        fs::create_dir_all(&folder).map_err(|source| StoreError::Folder { path: folder.clone(), source })?;
        let file =
            File::create(&path).map_err(|source| StoreError::File { action: "create", path: path.clone(), source })?;
        let mut schema = String::from("message iowhy {\n");
        for (name, of) in columns {
            let line = match of {
                Type::Number => format!("REQUIRED INT64 {name};\n"),
                Type::MaybeNumber => format!("OPTIONAL INT64 {name};\n"),
                Type::MaybeWord => format!("OPTIONAL BYTE_ARRAY {name} (UTF8);\n"),
            };
            schema.push_str(&line);
        }
        schema.push('}');
        let failed = |source| StoreError::Parquet { action: "write", path: path.clone(), source };
        let schema = parse_message_type(&schema).map_err(failed)?;
        let level = ZstdLevel::try_new(1).map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by(format!("iowhy {}", env!("CARGO_PKG_VERSION")));
        let hashing = Hashing { file, hash: blake3::Hasher::new(), bytes: 0 };
        let writer =
            SerializedFileWriter::new(hashing, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
        let gathered = columns.iter().map(|_| Gathered::default()).collect();
        Ok(Draft {
            kind,
            path,
            folder,
            lock,
            columns,
            gathered,
            gathered_rows: 0,
            rows: 0,
            writer: Some(writer),
            failure: None,
        })
    }

    /// Adds a row. Errors are reported at the end.
    pub(super) fn row(&mut self, items: &[Item]) {
        debug_assert_eq!(items.len(), self.columns.len());
        for (gathered, item) in self.gathered.iter_mut().zip(items) {
            match item {
                Item::Number(number) => gathered.numbers.push(*number),
                Item::Word(word) => gathered.words.push(word),
                Item::None => {}
            }
            gathered.levels.push(i16::from(*item != Item::None));
        }
        self.gathered_rows += 1;
        self.rows += 1;
        if self.gathered_rows == GROUP_ROWS {
            self.write_group();
        }
    }

    /// Writes the gathered rows.
    fn write_group(&mut self) {
        if self.gathered_rows > 0
            && self.failure.is_none()
            && let Some(writer) = &mut self.writer
            && let Err(source) = group(writer, self.columns, &self.gathered)
        {
            self.failure = Some(failure(&self.path, source));
        }
        for gathered in &mut self.gathered {
            gathered.numbers.clear();
            gathered.words.clear();
            gathered.levels.clear();
        }
        self.gathered_rows = 0;
    }

    /// Ends the file, with some words about it, and gives it its name.
    pub(super) fn finish(mut self, notes: &[(&str, String)]) -> Result<DataFile, StoreError> {
        self.write_group();
        if let Some(failure) = self.failure.take() {
            let _ = fs::remove_file(&self.path);
            return Err(failure);
        }
        let path = self.path.clone();
        let failed = |source| failure(&path, source);
        let writer = self.writer.take();
        let mut writer = writer.ok_or_else(|| failed(ParquetError::General("it was closed".to_owned())))?;
        for (key, value) in notes {
            writer.append_key_value_metadata(KeyValue::new((*key).to_owned(), value.clone()));
        }
        let sealed = writer.into_inner().map_err(failed).and_then(|Hashing { file, hash, bytes }| {
            let io = |action| move |source| StoreError::File { action, path: path.clone(), source };
            file.sync_all().map_err(io("write"))?;
            let hash = hash.finalize().to_hex().to_string();
            let name = self.folder.join(format!("{hash}.parquet"));
            fs::rename(&self.path, &name).map_err(|source| StoreError::File {
                action: "rename",
                path: self.path.clone(),
                source,
            })?;
            // The new name is on the disk when its folder is.
            File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(|source| StoreError::File {
                action: "sync",
                path: self.folder.clone(),
                source,
            })?;
            Ok((hash, bytes))
        });
        match sealed {
            Ok((hash, bytes)) => {
                Ok(DataFile { kind: self.kind, hash, rows: self.rows, bytes, _lock: Arc::clone(&self.lock) })
            }
            Err(error) => {
                let _ = fs::remove_file(&self.path);
                Err(error)
            }
        }
    }
}

/// The error of a file: that of the system if it is one, so that it has its advice.
fn failure(path: &Path, error: ParquetError) -> StoreError {
    let path = path.to_owned();
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => StoreError::File { action: "write", path, source: *source },
            Err(source) => StoreError::Parquet { action: "write", path, source: ParquetError::External(source) },
        },
        source => StoreError::Parquet { action: "write", path, source },
    }
}

fn group(
    writer: &mut SerializedFileWriter<Hashing>,
    columns: &[(&str, Type)],
    gathered: &[Gathered],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for ((_, of), values) in columns.iter().zip(gathered) {
        let Some(mut column) = group.next_column()? else { break };
        match of {
            Type::Number => {
                column.typed::<Int64Type>().write_batch(&values.numbers, None, None)?;
            }
            Type::MaybeNumber => {
                column.typed::<Int64Type>().write_batch(&values.numbers, Some(&values.levels), None)?;
            }
            Type::MaybeWord => {
                let words: Vec<ByteArray> = values.words.iter().map(|word| ByteArray::from(*word)).collect();
                column.typed::<ByteArrayType>().write_batch(&words, Some(&values.levels), None)?;
            }
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

impl Store {
    /// Keeps a recorded trace as the events of a run, with everything that it says of its circumstances.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_trace(&self, trace: &Trace) -> Result<DataFile, StoreError> {
        let lock = self.writing()?;
        let folder = self.data_directory();
        fs::create_dir_all(&folder).map_err(|source| StoreError::Folder { path: folder.clone(), source })?;
        let nr = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("trace-{}-{nr}{TEMPORARY}", std::process::id()));
        let written = || -> io::Result<(String, u64)> {
            let mut out = Hashing { file: File::create(&path)?, hash: blake3::Hasher::new(), bytes: 0 };
            trace_parquet::FORMAT.write_one(trace, &mut out)?;
            out.file.sync_all()?;
            let hash = out.hash.finalize().to_hex().to_string();
            fs::rename(&path, self.data_path(&hash))?;
            // The new name is on the disk when its folder is.
            File::open(&folder)?.sync_all()?;
            Ok((hash, out.bytes))
        };
        let (hash, bytes) = written().map_err(|source| {
            let _ = fs::remove_file(&path);
            StoreError::File { action: "write", path: path.clone(), source }
        })?;
        Ok(DataFile { kind: Kind::Events, hash, rows: trace.records.len() as u64, bytes, _lock: lock })
    }

    /// The trace that was kept as the events of a run.
    ///
    /// # Errors
    /// If it is missing or damaged.
    pub fn trace(&self, hash: &str) -> Result<Trace, StoreError> {
        let mut bytes = Vec::new();
        let path = self.data_path(hash);
        let read = self.open_data(hash)?.read_to_end(&mut bytes);
        read.map_err(|source| StoreError::File { action: "read", path: path.clone(), source })?;
        let mut problems = Problems::default();
        let found = trace_parquet::FORMAT.read_one(hash, &bytes, &mut problems);
        found.ok_or_else(|| StoreError::Damaged { what: problems.render(), path })
    }

    /// The path of a data file.
    pub fn data_path(&self, hash: &str) -> PathBuf {
        self.data_directory().join(format!("{hash}.parquet"))
    }

    /// Opens a data file and checks its bytes against its name.
    ///
    /// # Errors
    /// If it is missing, cannot be read, or has other bytes.
    pub(super) fn open_data(&self, hash: &str) -> Result<File, StoreError> {
        let path = self.data_path(hash);
        let io = |source| StoreError::File { action: "read", path: path.clone(), source };
        let mut file = File::open(&path).map_err(io)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer).map_err(io)? {
                0 => break,
                n => hasher.update(&buffer[..n]),
            };
        }
        let found = hasher.finalize().to_hex();
        if found.as_str() != hash {
            let runs = self.runs_of_file(hash).join(", ");
            let what =
                format!("its bytes have the hash {found} (run {runs}; `iowhy store check --repair` puts it aside)");
            return Err(StoreError::Damaged { what, path });
        }
        file.rewind().map_err(io)?;
        Ok(file)
    }

    /// Opens the rows of a data file.
    ///
    /// # Errors
    /// As for [`open_data`](Store::open_data), and if they cannot be read.
    pub(super) fn open_rows(&self, hash: &str) -> Result<SerializedFileReader<File>, StoreError> {
        let failed = |source| StoreError::Parquet { action: "read", path: self.data_path(hash), source };
        SerializedFileReader::new(self.open_data(hash)?).map_err(failed)
    }

    /// Ids of the runs that a data file belongs to, as far as they can be read.
    fn runs_of_file(&self, hash: &str) -> Vec<String> {
        let read = || {
            let query = "SELECT run_id FROM run JOIN data ON data.run = run.number WHERE hash = ?";
            self.database.prepare(query)?.query_map([hash], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        read().unwrap_or_default()
    }

    /// Whether a data file is there and its bytes match its name.
    ///
    /// # Errors
    /// If it is missing, cannot be read, or has other bytes.
    pub fn verify(&self, hash: &str) -> Result<(), StoreError> {
        self.open_data(hash).map(|_| ())
    }
}
