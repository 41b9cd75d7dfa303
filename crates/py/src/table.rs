//! Rows as Arrow's C interface has them: pandas, polars, pyarrow and DuckDB take the memory itself.
//!
//! Source: <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>
//!
//! Words are views of strings, which polars has as well, and up to twelve letters of one need no memory but the row's.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{
    Float64Builder, Int64Builder, PrimitiveBuilder, StringViewBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator, StructArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Rows of a batch: readers take one at a time.
const BATCH: usize = 1 << 17;

/// Values of a column that is being filled.
pub(crate) enum Column {
    Small(UInt32Builder),
    Large(UInt64Builder),
    Signed(Int64Builder),
    Float(Float64Builder),
    Word(StringViewBuilder),
}

/// The type of a column.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Small,
    Large,
    Signed,
    Float,
    Word,
}

impl Of {
    fn data_type(self) -> DataType {
        match self {
            Of::Small => DataType::UInt32,
            Of::Large => DataType::UInt64,
            Of::Signed => DataType::Int64,
            Of::Float => DataType::Float64,
            Of::Word => DataType::Utf8View,
        }
    }

    fn column(self) -> Column {
        match self {
            Of::Small => Column::Small(UInt32Builder::new()),
            Of::Large => Column::Large(UInt64Builder::new()),
            Of::Signed => Column::Signed(Int64Builder::new()),
            Of::Float => Column::Float(Float64Builder::new()),
            Of::Word => Column::Word(StringViewBuilder::new()),
        }
    }
}

fn put<T: ArrowPrimitiveType>(builder: &mut PrimitiveBuilder<T>, value: Option<T::Native>) {
    builder.append_option(value);
}

impl Column {
    /// The next value, a whole number.
    pub(crate) fn number(&mut self, value: Option<i64>) {
        match self {
            Column::Small(column) => put(column, value.map(|value| value as u32)),
            Column::Large(column) => put(column, value.map(|value| value as u64)),
            Column::Signed(column) => put(column, value),
            Column::Float(column) => put(column, value.map(|value| value as f64)),
            Column::Word(column) => column.append_option(value.map(|value| value.to_string())),
        }
    }

    pub(crate) fn float(&mut self, value: Option<f64>) {
        match self {
            Column::Float(column) => put(column, value),
            other => other.number(value.map(|value| value as i64)),
        }
    }

    pub(crate) fn word(&mut self, value: Option<&str>) {
        match self {
            Column::Word(column) => column.append_option(value),
            other => other.number(None),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Column::Small(column) => Arc::new(column.finish()),
            Column::Large(column) => Arc::new(column.finish()),
            Column::Signed(column) => Arc::new(column.finish()),
            Column::Float(column) => Arc::new(column.finish()),
            Column::Word(column) => Arc::new(column.finish()),
        }
    }
}

/// A table that is being filled.
pub(crate) struct Draft {
    schema: SchemaRef,
    pub(crate) columns: Vec<Column>,
    rows: usize,
    batches: Vec<RecordBatch>,
    failure: Option<String>,
}

impl Draft {
    pub(crate) fn new<S: Into<String>>(columns: impl IntoIterator<Item = (S, Of)>) -> Draft {
        let named: Vec<(String, Of)> = columns.into_iter().map(|(name, of)| (name.into(), of)).collect();
        let fields: Vec<Field> = named.iter().map(|(name, of)| Field::new(name, of.data_type(), true)).collect();
        let columns = named.iter().map(|(_, of)| of.column()).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, HashMap::new()));
        Draft { schema, columns, rows: 0, batches: Vec::new(), failure: None }
    }

    /// Every column has got the value of a row.
    pub(crate) fn next(&mut self) {
        self.rows += 1;
        if self.rows == BATCH {
            self.batch();
        }
    }

    fn batch(&mut self) {
        self.rows = 0;
        let columns = self.columns.iter_mut().map(Column::finish).collect();
        match RecordBatch::try_new(Arc::clone(&self.schema), columns) {
            Ok(batch) => self.batches.push(batch),
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    pub(crate) fn finish(mut self) -> Result<Table, String> {
        if self.rows > 0 || self.batches.is_empty() {
            self.batch();
        }
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(Table { schema: self.schema, batches: self.batches }),
        }
    }
}

/// Rows and columns; any library that reads Arrow takes them as they are.
#[pyclass(module = "iowhy", frozen)]
#[derive(Clone)]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn schema<'py>(py: Python<'py>, of: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowSchema::try_from(of).map_err(wrong)?, c"arrow_schema")
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Memory of the values, bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.batches.iter().map(RecordBatch::get_array_memory_size).sum()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    fn __repr__(&self) -> String {
        format!("<iowhy.Table: {} rows of {}>", self.__len__(), self.column_names().join(", "))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema(py, &self.schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    pub(crate) fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Another schema is a wish, which the interface allows to be refused by giving our own.
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    /// The parts of the table, of 131 072 rows at most: each is one array of Arrow.
    #[getter]
    fn batches(&self) -> Vec<Batch> {
        self.batches.iter().cloned().map(Batch).collect()
    }
}

/// A part of a table. A table itself is a stream: libraries would take one with an array for a single one.
#[pyclass(module = "iowhy", frozen)]
#[derive(Clone)]
pub(crate) struct Batch(RecordBatch);

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema(py, &self.0.schema())
    }

    /// One array of structures.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let array = StructArray::from(self.0.clone());
        let (array, of): (FFI_ArrowArray, FFI_ArrowSchema) = to_ffi(&array.to_data()).map_err(wrong)?;
        let of = PyCapsule::new_with_value(py, of, c"arrow_schema")?;
        Ok((of, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }
}
