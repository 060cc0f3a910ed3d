//! Live data: GPUs through NVML, and PyTorch's own figures from a helper inside the process.
//!
//! ```text
//!  NVML ─ nvml ─▶ source::GpuSource ─▶ sampler (one thread) ─┐
//!  /proc ─ process ───────────────────────┘                  ├─ records ─▶ session::LiveSession ─▶ History ─▶ Recording
//!  helper in a process ─▶ peer ─▶ agent (one thread a process) ┘                   └─▶ a .vramscope file or a pipe
//! ```
//!
//! This code knows of no screen and never creates a CUDA context: NVML does not, and the helper only queries devices that already
//! have one. A machine without a driver is a state with a sentence ([`source::GpuError`]), not a failure to start.

pub mod agent;
pub mod alarm;
pub mod attach;
mod budget;
mod engine;
#[cfg(test)]
mod fake;
pub mod metrics;
#[cfg(feature = "live")]
mod nvml;
mod peer;
mod process;
mod rates;
mod sampler;
mod session;
pub mod snap;
pub mod source;
#[cfg(test)]
mod tests;

pub use rates::Rates;
pub use session::{LiveSession, SessionOptions};

use source::{GpuError, GpuSource};

/// Opens the driver's library. Takes about 11 ms with a driver, and less without one.
///
/// # Errors
/// [`GpuError`], whose text is one sentence for the user.
pub fn open() -> Result<Box<dyn GpuSource>, GpuError> {
    #[cfg(feature = "live")]
    {
        // The path of the library, for unusual installations and for tests.
        let path = std::env::var_os("VRAMSCOPE_NVML").filter(|p| !p.is_empty());
        let named = |error| match (error, &path) {
            (GpuError::NoDriver, Some(path)) if !std::path::Path::new(path).exists() => {
                GpuError::NoLibrary(path.to_string_lossy().into_owned())
            }
            (GpuError::BadLibrary(why), Some(path)) => {
                GpuError::BadLibrary(format!("VRAMSCOPE_NVML names {}: {why}", path.to_string_lossy()))
            }
            (error, _) => error,
        };
        Ok(Box::new(nvml::NvmlSource::open(path.as_deref()).map_err(named)?))
    }
    #[cfg(not(feature = "live"))]
    Err(GpuError::NotBuilt)
}

/// The current time in microseconds since the epoch.
pub fn wall_clock_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
