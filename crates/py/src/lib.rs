//! The Python module `iowhy`: verbs of the command line as functions that return values.
//!
//! ```text
//! error     mistakes as one exception with the problems of the command line
//! work      long work on another thread than the interpreter: progress, Ctrl-C
//! shown     JSON as values, pages of notebooks
//! table     rows as Arrow, without copies
//! policy    read-ahead and elevators written in Python
//! run       jobs, simulated and on the running kernel
//! answer    compare, explain, why, bisect, incident
//! swept     sweeps: tasks for any worker
//! kept      stores, traces, tables of models
//! ```
//!
//! Everything here takes words apart and hands values over; `python/iowhy` has the signatures. Limit: Unix only.

mod answer;
mod error;
mod kept;
mod policy;
mod run;
mod shown;
mod swept;
mod table;
mod work;

use pyo3::prelude::*;

/// The compiled half of the package; `iowhy` imports everything from it.
#[pymodule(name = "_native")]
fn iowhy_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<error::Error>())?;
    module.add_class::<error::Mistake>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<table::Batch>()?;
    module.add_class::<run::Runs>()?;
    module.add_class::<policy::Waiting>()?;
    module.add_class::<answer::Answer>()?;
    module.add_class::<kept::Store>()?;
    module.add_class::<kept::Trace>()?;
    module.add_function(wrap_pyfunction!(run::run, module)?)?;
    module.add_function(wrap_pyfunction!(answer::compare, module)?)?;
    module.add_function(wrap_pyfunction!(answer::explain, module)?)?;
    module.add_function(wrap_pyfunction!(answer::why, module)?)?;
    module.add_function(wrap_pyfunction!(answer::bisect, module)?)?;
    module.add_function(wrap_pyfunction!(answer::incident, module)?)?;
    module.add_function(wrap_pyfunction!(answer::incidents, module)?)?;
    module.add_function(wrap_pyfunction!(kept::models, module)?)?;
    module.add_class::<swept::Swept>()?;
    module.add_function(wrap_pyfunction!(swept::sweep_plan, module)?)?;
    module.add_function(wrap_pyfunction!(swept::sweep_plan_of_file, module)?)?;
    module.add_function(wrap_pyfunction!(swept::sweep_task, module)?)?;
    module.add_function(wrap_pyfunction!(swept::sweep_lost, module)?)?;
    module.add_function(wrap_pyfunction!(swept::sweep_wanted, module)?)?;
    module.add_function(wrap_pyfunction!(swept::sweep_keep, module)?)?;
    module.add_function(wrap_pyfunction!(swept::sweep_gather, module)?)?;
    module.add_function(wrap_pyfunction!(swept::sweep_local, module)?)?;
    Ok(())
}
