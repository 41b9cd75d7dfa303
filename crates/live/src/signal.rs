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
static HELD: Mutex<(u32, Vec<Before>)> = Mutex::new((0, Vec::new()));

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

/// The end that a signal asked for was the usual one, and no reason for another exit code.
pub fn was_expected() {
    LAST.store(0, Ordering::Relaxed);
}

extern "C" fn on_signal(signal: libc::c_int) {
    LAST.store(signal, Ordering::Relaxed);
    if RAISED.fetch_add(1, Ordering::Relaxed) + 1 >= IMPATIENT {
        // SAFETY: _exit may be called in a signal handler.
        unsafe { libc::_exit(128 + signal) };
    }
}

/// Action of a signal before a handler was installed.
pub(crate) struct Before {
    signal: libc::c_int,
    action: libc::sigaction,
}

impl Before {
    /// Installs the handler at an address.
    ///
    /// # Safety
    /// It is a function of the kind that the flags ask for, and makes only calls that a handler may make.
    pub(crate) unsafe fn install(signal: libc::c_int, handler: usize, flags: libc::c_int) -> Before {
        // SAFETY: zeroes are a valid value of the C structure (default action, empty mask). Both live through the call.
        unsafe {
            let (mut action, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
            (action.sa_sigaction, action.sa_flags) = (handler, flags);
            libc::sigaction(signal, &raw const action, &raw mut before);
            Before { signal, action: before }
        }
    }

    fn put_back(&self) {
        // SAFETY: the action is what sigaction itself has stored.
        unsafe { libc::sigaction(self.signal, &raw const self.action, std::ptr::null_mut()) };
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
            let handler = on_signal as extern "C" fn(libc::c_int) as usize;
            for signal in SIGNALS {
                // SAFETY: the handler takes a number, and only touches atomics.
                let before = unsafe { Before::install(signal, handler, libc::SA_RESTART) };
                if signal == libc::SIGHUP && before.action.sa_sigaction == libc::SIG_IGN {
                    // `nohup` wants the run to go on.
                    before.put_back();
                }
                held.1.push(before);
            }
        }
        held.0 += 1;
        Guard(())
    }
}

/// SIGUSR1s that nobody has asked for yet.
static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_call(_: libc::c_int) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// SIGUSR1 asks for something as long as there is one of these, instead of ending the process.
pub struct Call(Before);

impl Call {
    /// Takes the signal over.
    pub fn take() -> Call {
        let handler = on_call as extern "C" fn(libc::c_int) as usize;
        // SAFETY: the handler takes a number, and only touches an atomic.
        Call(unsafe { Before::install(libc::SIGUSR1, handler, libc::SA_RESTART) })
    }

    /// Whether it has come since the last time this was asked.
    pub fn came(&self) -> bool {
        CALLS.swap(0, Ordering::Relaxed) > 0
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.put_back();
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
        held.1.drain(..).for_each(|before| before.put_back());
    }
}
