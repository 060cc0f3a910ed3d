//! The functions of the CUDA driver, from the library that cudarc loads.
//!
//! cudarc provides the library and the types. Its functions are not called directly, because it panics when the installed driver
//! lacks one. Instead each is looked up by name ([`Driver`]) and called only when it exists. Errors are reported by number,
//! because a stub library cannot be asked for the driver's text.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys;
pub(super) use cudarc::driver::sys::{
    CUmemAccessDesc as AccessDesc, CUmemAllocationProp as AllocationProp, CUmemLocation as Location,
};

/// A driver handle: context, stream, event, pool.
pub(super) type Handle = *mut c_void;
/// The type of function that `cuLaunchHostFunc` calls.
pub(super) type HostFunction = unsafe extern "C" fn(*mut c_void);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CudaError {
    /// The driver returned an error: its code, and the function.
    Code(i32, &'static str),
    /// This driver lacks the function.
    Missing(&'static str),
}

impl CudaError {
    pub(super) fn is_out_of_memory(self) -> bool {
        matches!(self, CudaError::Code(code, _) if code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32)
    }

    /// One sentence about what happened and what to do.
    pub(super) fn sentence(self) -> String {
        let (code, call) = match self {
            CudaError::Missing(call) => {
                return format!("the installed NVIDIA driver has no {call}: it is too old for this scenario; update the driver");
            }
            CudaError::Code(code, call) => (code, call),
        };
        let what = match code {
            1 => "the driver does not accept the arguments",
            2 => "the card is out of memory",
            3 => "the driver is not initialised",
            34 => {
                "a stub of the CUDA toolkit is loaded in place of the driver; remove the folder that ends in /stubs from LD_LIBRARY_PATH"
            }
            46 => "the card is in use by a process that does not share it",
            100 => "there is no NVIDIA card that this process may use; see nvidia-smi and CUDA_VISIBLE_DEVICES",
            101 => "there is no card of this number",
            201 | 709 => "the CUDA context is gone",
            214 => "the card found a memory error that it cannot correct; see nvidia-smi -q",
            304 => "the operating system refused; see dmesg",
            700 | 702 | 719 => "the card stopped working for this process; see dmesg for an Xid",
            800 => "the system does not permit this",
            801 => "this card does not support it",
            802 => "the system is not ready yet; on machines with NVSwitch the fabric manager must run",
            803 => "the driver's library and kernel module are of different versions; restart the machine",
            804 => "the card does not support the forward-compatible driver library that is loaded",
            _ => "the driver failed",
        };
        format!("{what} (error {code} of {call})")
    }
}

macro_rules! driver {
    ($($field:ident $symbol:literal ($($arg:ty),*);)*) => {
        /// The functions; `None` where this driver lacks one.
        pub(super) struct Driver {
            $(pub(super) $field: Option<unsafe extern "C" fn($($arg),*) -> c_int>,)*
        }

        impl Driver {
            /// Looks the functions up. Call only after [`sys::is_culib_present`] returned true, as cudarc panics without a library.
            fn of_loaded() -> Self {
                // SAFETY: loading runs the driver's initialisers, as in every CUDA program; cudarc never unloads it.
                let library = unsafe { sys::culib() };
                Driver {
                    // SAFETY: the signatures are those of cuda.h.
                    $($field: unsafe { library.get(concat!($symbol, "\0").as_bytes()) }.ok().map(|f| *f),)*
                }
            }
        }

        /// The exported name of each field.
        #[allow(non_upper_case_globals)]
        pub(super) mod names {
            $(pub(in super::super) const $field: &str = $symbol;)*
        }
    };
}

driver! {
    init "cuInit" (c_uint);
    device_count "cuDeviceGetCount" (*mut c_int);
    device_get "cuDeviceGet" (*mut c_int, c_int);
    device_name "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_pci "cuDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
    context_retain "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    context_release "cuDevicePrimaryCtxRelease_v2" (c_int);
    context_set "cuCtxSetCurrent" (Handle);
    context_sync "cuCtxSynchronize" ();
    mem_info "cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_alloc "cuMemAlloc_v2" (*mut u64, usize);
    mem_free "cuMemFree_v2" (u64);
    mem_set "cuMemsetD8Async" (u64, u8, usize, Handle);
    host_alloc "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free "cuMemFreeHost" (*mut c_void);
    address_reserve "cuMemAddressReserve" (*mut u64, usize, usize, u64, u64);
    address_free "cuMemAddressFree" (u64, usize);
    mem_create "cuMemCreate" (*mut u64, usize, *const AllocationProp, u64);
    mem_release "cuMemRelease" (u64);
    mem_map "cuMemMap" (u64, usize, usize, u64, u64);
    mem_unmap "cuMemUnmap" (u64, usize);
    mem_access "cuMemSetAccess" (u64, usize, *const AccessDesc, usize);
    stream_create "cuStreamCreate" (*mut Handle, c_uint);
    stream_destroy "cuStreamDestroy_v2" (Handle);
    stream_sync "cuStreamSynchronize" (Handle);
    host_function "cuLaunchHostFunc" (Handle, HostFunction, *mut c_void);
    event_create "cuEventCreate" (*mut Handle, c_uint);
    event_record "cuEventRecord" (Handle, Handle);
    event_query "cuEventQuery" (Handle);
    event_sync "cuEventSynchronize" (Handle);
    event_destroy "cuEventDestroy_v2" (Handle);
    pool_default "cuDeviceGetDefaultMemPool" (*mut Handle, c_int);
    pool_set "cuMemPoolSetAttribute" (Handle, c_uint, *mut c_void);
    pool_get "cuMemPoolGetAttribute" (Handle, c_uint, *mut c_void);
    alloc_async "cuMemAllocAsync" (*mut u64, usize, Handle);
    free_async "cuMemFreeAsync" (u64, Handle);
}

impl Driver {
    /// Loads the installed driver. The error is one sentence.
    pub(super) fn load() -> Result<Self, String> {
        // SAFETY: this only tries to load the library by its names, as above.
        if unsafe { sys::is_culib_present() } {
            return Ok(Driver::of_loaded());
        }
        let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
        Err(format!(
            "there is no NVIDIA driver on this machine ({name} was not found); run the same on the simulated card (--simulated)"
        ))
    }
}

/// Calls a function of the driver if it exists: `call!(driver, mem_free, (address))`.
macro_rules! call {
    ($driver:expr, $field:ident, ($($arg:expr),*)) => {
        match $driver.$field {
            None => Err($crate::probe::cuda::driver::CudaError::Missing($crate::probe::cuda::driver::names::$field)),
            // SAFETY: pointers live for the call; handles and addresses came from this driver.
            Some(f) => match unsafe { f($($arg),*) } {
                0 => Ok(()),
                code => Err($crate::probe::cuda::driver::CudaError::Code(code, $crate::probe::cuda::driver::names::$field)),
            },
        }
    };
}
pub(super) use call;
