//! [`Gate`]: holds a stream until it is opened.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Longest time that a stream is held.
const LONGEST: Duration = Duration::from_secs(120);

/// State of a host function that waits in a stream.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Ends the wait, also one that has yet to begin.
    pub(super) fn open(&self) {
        if let Ok(mut is_open) = self.is_open.lock() {
            *is_open = true;
            self.opened.notify_all();
        }
    }

    /// A counted reference to the gate as the argument of [`wait`], which releases it.
    pub(super) fn argument(gate: &Arc<Gate>) -> *mut c_void {
        Arc::into_raw(Arc::clone(gate)).cast_mut().cast()
    }
}

/// The host function: waits until the gate opens. It calls nothing of CUDA, which the driver forbids.
///
/// # Safety
/// `argument` must come from [`Gate::argument`] and must not have been used before.
pub(super) unsafe extern "C" fn wait(argument: *mut c_void) {
    // SAFETY: the caller guarantees a counted reference, which this call takes over.
    let gate = unsafe { Arc::from_raw(argument.cast::<Gate>().cast_const()) };
    if let Ok(is_open) = gate.is_open.lock() {
        // A timeout ends the wait as well, and there is nobody to report it to.
        let _ = gate.opened.wait_timeout_while(is_open, LONGEST, |open| !*open);
    }
}
