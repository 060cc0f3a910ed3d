//! [`Gate`]: work on a stream that ends when somebody says so.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// No stream is held longer, whatever happens.
const LONGEST: Duration = Duration::from_secs(120);

/// A host function that waits in a stream.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Lets the waiting work end.
    pub(super) fn open(&self) {
        if let Ok(mut is_open) = self.is_open.lock() {
            *is_open = true;
            self.opened.notify_all();
        }
    }

    /// A share of the gate as the argument of [`wait`], which gives it back.
    pub(super) fn argument(gate: &Arc<Gate>) -> *mut c_void {
        Arc::into_raw(Arc::clone(gate)).cast_mut().cast()
    }
}

/// The host function: waits until the gate opens. It calls nothing of CUDA, as the driver demands.
///
/// # Safety
/// `argument` is one that [`Gate::argument`] gave, and was not used before.
pub(super) unsafe extern "C" fn wait(argument: *mut c_void) {
    // SAFETY: by the caller's promise this is a share of a gate, which this call takes over.
    let gate = unsafe { Arc::from_raw(argument.cast::<Gate>().cast_const()) };
    if let Ok(is_open) = gate.is_open.lock() {
        // The end of the longest wait opens it as well; there is nobody to tell.
        let _ = gate.opened.wait_timeout_while(is_open, LONGEST, |open| !*open);
    }
}
