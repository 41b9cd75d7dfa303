//! Long work on a thread of its own: the interpreter is free, its progress callback is called where the caller is, and
//! Ctrl-C is looked for every 50 ms.
//!
//! Work that changes nothing outside is left behind then, and ends at its next step; work on the running kernel hears
//! the signal itself, and is waited for.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use iowhy_text::diagnose::Problems;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

use crate::error;

/// How often signals are looked for.
const HEARD: Duration = Duration::from_millis(50);

enum Told<T> {
    Done(u64, u64),
    Ended(Result<T, Problems>),
}

/// The reports of the work.
pub(crate) struct Progress {
    tell: Mutex<Box<dyn Fn(u64, u64) + Send>>,
    left: Arc<AtomicBool>,
}

/// Nobody waits for the work any more.
struct Left;

impl Progress {
    /// So much is done of so much. Does not return if nobody waits for it.
    pub(crate) fn advance(&self, done: u64, of: u64) {
        if self.left.load(Ordering::Relaxed) {
            // Not a panic: nothing is reported.
            resume_unwind(Box::new(Left));
        }
        let tell = self.tell.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tell(done, of);
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Threads without work, and their process: a fork leaves them behind. A new one for each call would cost more than
/// the call.
static IDLE: Mutex<(u32, Vec<Sender<Work>>)> = Mutex::new((0, Vec::new()));
/// Most of them.
const KEPT: usize = 4;

/// Those of this process, unless somebody has them now.
fn idle() -> Option<MutexGuard<'static, (u32, Vec<Sender<Work>>)>> {
    let mut idle = IDLE.try_lock().ok()?;
    if idle.0 != std::process::id() {
        // Their channels are as they were at the fork: nobody listens.
        *idle = (std::process::id(), Vec::new());
    }
    Some(idle)
}

/// Has the work done by a thread that has none.
fn give(work: Work) -> std::io::Result<()> {
    let sent = match idle().and_then(|mut idle| idle.1.pop()) {
        Some(thread) => thread.send(work).map_err(|unsent| unsent.0),
        None => Err(work),
    };
    let Err(mut work) = sent else { return Ok(()) };
    let (send, receive) = mpsc::channel();
    let labour = move || {
        loop {
            work();
            match idle() {
                Some(mut idle) if idle.1.len() < KEPT => idle.1.push(send.clone()),
                _ => return,
            }
            match receive.recv() {
                Ok(next) => work = next,
                Err(_) => return,
            }
        }
    };
    std::thread::Builder::new().name("iowhy".to_owned()).spawn(labour).map(drop)
}

/// Does the work, and calls `progress(done, of)` on the way. `real` work ends by itself after a signal.
pub(crate) fn aside<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    real: bool,
    work: impl FnOnce(&Progress) -> Result<T, Problems> + Send + 'static,
) -> PyResult<T> {
    let (send, receive) = mpsc::channel();
    let left = Arc::new(AtomicBool::new(false));
    let steps: Sender<Told<T>> = send.clone();
    let asked = progress.is_some();
    let tell = move |done, of| {
        if asked {
            // A caller who has gone does not hear it.
            let _ = steps.send(Told::Done(done, of));
        }
    };
    let reports = Progress { tell: Mutex::new(Box::new(tell)), left: Arc::clone(&left) };
    let given = give(Box::new(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| work(&reports)));
        if let Ok(result) = ended {
            let _ = send.send(Told::Ended(result));
        }
    }));
    given.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let receive = Mutex::new(receive);
    let mut stopped = None;
    loop {
        let told = py.detach(|| receive.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv_timeout(HEARD));
        let step = match told {
            Ok(Told::Ended(_)) if stopped.is_some() => return Err(stopped.unwrap_or_else(interrupted)),
            Ok(Told::Ended(Ok(value))) => return Ok(value),
            Ok(Told::Ended(Err(problems))) => return Err(error::of(py, problems)),
            Ok(Told::Done(done, of)) => progress.map_or(Ok(()), |call| call.call1((done, of)).map(drop)),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                let defect = || PyRuntimeError::new_err("iowhy has a defect: its thread has panicked");
                return Err(stopped.unwrap_or_else(defect));
            }
        };
        if let Err(error) = step.and_then(|()| py.check_signals()) {
            left.store(true, Ordering::Relaxed);
            if !real {
                return Err(error);
            }
            stopped.get_or_insert(error);
        }
    }
}

/// Python's exception after Ctrl-C.
pub(crate) fn interrupted() -> PyErr {
    PyKeyboardInterrupt::new_err(())
}
