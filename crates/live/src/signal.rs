//! SIGINT, SIGTERM and SIGHUP end a run cleanly: the handler only sets a flag that every thread looks at between two
//! calls.
//!
//! A measurement holds a [`Guard`]; the earlier handlers come back when the last one goes. The third signal gives up
//! waiting and ends the process: a call may hang in the kernel for ever.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Signals since the first guard was taken.
static RAISED: AtomicU32 = AtomicU32::new(0);
/// Guards alive, and what the signals did before.
static HELD: Mutex<(u32, Option<[libc::sigaction; SIGNALS.len()]>)> = Mutex::new((0, None));

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// The last of them that came; 0 if none has since the process started.
static LAST: AtomicI32 = AtomicI32::new(0);
/// Number of signals that ends the process at once.
const IMPATIENT: u32 = 3;

/// Whether a signal has asked for the end.
#[inline(always)]
pub fn raised() -> bool {
    RAISED.load(Ordering::Relaxed) != 0
}

/// The exit code of a process that a signal has ended early: 128 and its number, as shells have it.
pub fn exit_code() -> Option<u8> {
    u8::try_from(LAST.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0).map(|signal| 128 + signal)
}

extern "C" fn on_signal(signal: libc::c_int) {
    LAST.store(signal, Ordering::Relaxed);
    if RAISED.fetch_add(1, Ordering::Relaxed) + 1 >= IMPATIENT {
        // SAFETY: _exit may be called in a signal handler.
        unsafe { libc::_exit(128 + signal) };
    }
}

/// The signals set the flag as long as there is one of these.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes the signals over.
    pub fn take() -> Guard {
        let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if held.0 == 0 {
            RAISED.store(0, Ordering::Relaxed);
            // SAFETY: a sigaction of zeroes is a valid value of the C structure (default action, empty mask).
            let mut before: [libc::sigaction; SIGNALS.len()] = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            for (signal, before) in SIGNALS.iter().zip(&mut before) {
                // SAFETY: both structures live through the call; the handler only touches an atomic.
                unsafe { libc::sigaction(*signal, &raw const action, before) };
                if *signal == libc::SIGHUP && before.sa_sigaction == libc::SIG_IGN {
                    // `nohup` wants the run to go on.
                    // SAFETY: as above.
                    unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
                }
            }
            held.1 = Some(before);
        }
        held.0 += 1;
        Guard(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        held.0 -= 1;
        if held.0 > 0 {
            return;
        }
        RAISED.store(0, Ordering::Relaxed);
        for (signal, before) in SIGNALS.iter().zip(held.1.take().iter().flatten()) {
            // SAFETY: `before` is what sigaction itself has stored.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}
