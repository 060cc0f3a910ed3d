//! [`CudaCard`]: a real card through the CUDA driver API. Only child processes open it.

mod driver;
mod gate;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAllocationHandleType, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocationType,
};

use self::driver::{AccessDesc, AllocationProp, CudaError, Driver, Handle, Location, call};
use self::gate::Gate;
use super::card::{Card, CardInfo, Outside};
use super::nvml::Nvml;
use super::perform::now_us;
use vramscope_core::allocator::{DeviceError, DeviceMemory};
use vramscope_core::model::Sample;
use vramscope_core::units::{Bytes, MEBIBYTE};

/// Upper bound of a context's size when it cannot be measured.
const CONTEXT_ALLOWANCE: u64 = 768 * MEBIBYTE;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD` and `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_NOW: u32 = 5;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: i32 = 600;

/// What the run may do to the card.
#[derive(Clone, Copy, Debug, Default)]
pub struct Permission {
    /// Run although other processes hold more than a twentieth of the card.
    pub is_shared: bool,
    /// Use the last free bytes too.
    pub fills: bool,
}

/// A CUDA device with a context of this process.
pub struct CudaCard {
    driver: Driver,
    nvml: Option<Nvml>,
    device: i32,
    index: i32,
    name: String,
    total: u64,
    kept_free: u64,
    free_at_start: u64,
    /// Bytes of the context, when NVML could tell.
    context: u64,
    streams: FxHashMap<u64, Handle>,
    gates: FxHashMap<u64, Arc<Gate>>,
    events: FxHashMap<u64, Handle>,
    next_event: u64,
    /// The memory handle of each mapped page.
    pages: BTreeMap<u64, u64>,
    outside: Vec<(u64, u64)>,
    /// Total bytes taken through this card.
    taken: u64,
    pool: Option<Handle>,
    neighbours: Vec<Child>,
    failure: Option<String>,
}

impl std::fmt::Debug for CudaCard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaCard").field("name", &self.name).field("total", &self.total).finish_non_exhaustive()
    }
}

impl CudaCard {
    /// Opens a card. `seen` is called with each stage of the start and the sample after it.
    ///
    /// # Errors
    /// One sentence: no driver, a stub, no such card, no room for a context, or other processes hold too much of it.
    pub fn open(index: i32, permission: Permission, seen: &mut dyn FnMut(&str, Sample)) -> Result<Self, String> {
        let at = |sample: Sample| Sample { time_us: now_us(), ..sample };
        let nvml = Nvml::load(index);
        let before = nvml.as_ref().and_then(Nvml::used);
        seen("before CUDA", at(Sample { used: before, process: Some(0), others: before, ..Sample::default() }));
        let driver = Driver::load()?;
        call!(driver, init, (0)).map_err(CudaError::sentence)?;
        let initialised = nvml.as_ref().and_then(Nvml::used);
        let process = initialised.zip(before).map(|(now, then)| now.saturating_sub(then));
        seen("cuInit", at(Sample { used: initialised, process, others: before, ..Sample::default() }));
        let mut count = 0;
        call!(driver, device_count, (&mut count)).map_err(CudaError::sentence)?;
        if index < 0 || index >= count {
            return Err(format!("there is no card {index}; this process may use {count}, counted from 0"));
        }
        let mut device = 0;
        call!(driver, device_get, (&mut device, index)).map_err(CudaError::sentence)?;
        let name = text(|buffer| call!(driver, device_name, (buffer.as_mut_ptr().cast(), buffer.len() as i32, device)))
            .unwrap_or_else(|_| format!("GPU {index}"));
        let mut context: Handle = ptr::null_mut();
        call!(driver, context_retain, (&mut context, device)).map_err(|e| {
            if e.is_out_of_memory() {
                format!("{name} has no room for a CUDA context, which takes about half a GiB; stop what runs on it (nvidia-smi lists it)")
            } else {
                e.sentence()
            }
        })?;
        let mut card = CudaCard {
            driver,
            nvml,
            device,
            index,
            name,
            total: 0,
            kept_free: 0,
            free_at_start: 0,
            context: 0,
            streams: FxHashMap::default(),
            gates: FxHashMap::default(),
            events: FxHashMap::default(),
            next_event: 0,
            pages: BTreeMap::new(),
            outside: Vec::new(),
            taken: 0,
            pool: None,
            neighbours: Vec::new(),
            failure: None,
        };
        call!(card.driver, context_set, (context)).map_err(CudaError::sentence)?;
        let (_, total) = card.memory().map_err(CudaError::sentence)?;
        card.total = total;
        // NVML may number cards differently from CUDA when some are hidden. Its earlier figures were then about another card.
        let pci = text(|buffer| call!(card.driver, device_pci, (buffer.as_mut_ptr().cast(), buffer.len() as i32, device)));
        let is_same = card.nvml.as_mut().is_some_and(|n| pci.as_deref().is_ok_and(|pci| n.is_at(pci)));
        let before = before.filter(|_| is_same);
        card.stage("primary context", before, seen);
        let mut first = 0;
        call!(card.driver, mem_alloc, (&mut first, 1)).map_err(CudaError::sentence)?;
        card.warm_up(first).map_err(CudaError::sentence)?;
        card.stage("first byte", before, seen);
        // The byte is freed, because PyTorch makes no such allocation and it would shift every small segment.
        call!(card.driver, mem_free, (first)).map_err(CudaError::sentence)?;
        let (free, _) = card.memory().map_err(CudaError::sentence)?;
        card.context = before.map_or(0, |b| (total - free).saturating_sub(b));
        let others = before.unwrap_or_else(|| (total - free).saturating_sub(CONTEXT_ALLOWANCE));
        if others > total / 20 && !permission.is_shared {
            return Err(format!(
                "others hold {} of {}'s {}, more than a twentieth; stop them, or say --shared to run beside them",
                Bytes(others),
                card.name,
                Bytes(total)
            ));
        }
        card.kept_free = if permission.fills { 0 } else { (512 * MEBIBYTE).max(total / 50) };
        card.free_at_start = card.available();
        Ok(card)
    }

    /// Uses a stream, an event and a memset once, because their first use may take memory that is not the scenario's.
    fn warm_up(&mut self, byte: u64) -> Result<(), CudaError> {
        let mut stream: Handle = ptr::null_mut();
        let mut event: Handle = ptr::null_mut();
        call!(self.driver, stream_create, (&mut stream, 1))?;
        call!(self.driver, event_create, (&mut event, 2))?;
        for queue in [ptr::null_mut(), stream] {
            call!(self.driver, mem_set, (byte, 1, 1, queue))?;
            call!(self.driver, event_record, (event, queue))?;
        }
        call!(self.driver, context_sync, ())?;
        call!(self.driver, event_destroy, (event))?;
        call!(self.driver, stream_destroy, (stream))
    }

    fn stage(&mut self, name: &str, before: Option<u64>, seen: &mut dyn FnMut(&str, Sample)) {
        let used = self.memory().ok().map(|(free, total)| total.saturating_sub(free));
        let process = used.zip(before).map(|(u, b)| u.saturating_sub(b));
        self.context = process.unwrap_or(0);
        let sample = Sample { time_us: now_us(), used, process, others: before, ..Sample::default() };
        seen(name, sample);
    }

    /// Free and total bytes according to the driver.
    fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0usize, 0usize);
        call!(self.driver, mem_info, (&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Remembers the first failure of a call that returns no error.
    fn note(&mut self, result: Result<(), CudaError>) {
        if let Err(error) = result {
            self.failure.get_or_insert_with(|| error.sentence());
        }
    }

    fn device_error(error: CudaError) -> DeviceError {
        if error.is_out_of_memory() { DeviceError::OutOfMemory } else { DeviceError::Failed(error.sentence()) }
    }

    /// Checks that `size` more bytes leave the protected bytes free.
    fn check_room(&self, size: u64) -> Result<(), DeviceError> {
        let (free, _) = self.memory().map_err(Self::device_error)?;
        if size.saturating_add(self.kept_free) > free { Err(DeviceError::OutOfMemory) } else { Ok(()) }
    }

    fn stream(&mut self, stream: u64) -> Result<Handle, CudaError> {
        if stream == 0 {
            return Ok(ptr::null_mut());
        }
        if let Some(&handle) = self.streams.get(&stream) {
            return Ok(handle);
        }
        let mut handle: Handle = ptr::null_mut();
        // 1 is CU_STREAM_NON_BLOCKING: it does not wait for the default stream.
        call!(self.driver, stream_create, (&mut handle, 1))?;
        self.streams.insert(stream, handle);
        Ok(handle)
    }

    /// Opens all gates, because calls that wait for the device would wait for held streams for ever.
    fn open_gates(&mut self) {
        for (_, gate) in self.gates.drain() {
            gate.open();
        }
    }

    fn location(&self) -> Location {
        Location { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device }
    }

    fn map_page(&mut self, address: u64, page: u64) -> Result<(), CudaError> {
        let prop = AllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: self.location(),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let mut handle = 0;
        call!(self.driver, mem_create, (&mut handle, page as usize, &prop, 0))?;
        if let Err(error) = call!(self.driver, mem_map, (address, page as usize, 0, handle, 0)) {
            let released = call!(self.driver, mem_release, (handle));
            self.note(released);
            return Err(error);
        }
        self.pages.insert(address, handle);
        self.taken += page;
        Ok(())
    }

    fn unmap_page(&mut self, address: u64, page: u64) {
        if let Some(handle) = self.pages.remove(&address) {
            let unmapped = call!(self.driver, mem_unmap, (address, page as usize));
            self.note(unmapped);
            let released = call!(self.driver, mem_release, (handle));
            self.note(released);
            self.taken = self.taken.saturating_sub(page);
        }
    }

    fn pool(&mut self) -> Result<Handle, CudaError> {
        if let Some(pool) = self.pool {
            return Ok(pool);
        }
        let mut pool: Handle = ptr::null_mut();
        call!(self.driver, pool_default, (&mut pool, self.device))?;
        self.pool = Some(pool);
        Ok(pool)
    }
}

/// A string that a driver call writes into a buffer.
fn text(write: impl FnOnce(&mut [u8]) -> Result<(), CudaError>) -> Result<String, CudaError> {
    let mut buffer = [0u8; 128];
    write(&mut buffer)?;
    let end = buffer.iter().position(|&b| b == 0).unwrap_or(buffer.len());
    Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
}

impl DeviceMemory for CudaCard {
    fn total(&self) -> u64 {
        self.total
    }

    /// Free bytes according to the driver, without those that the probe leaves alone.
    fn available(&self) -> u64 {
        self.memory().map_or(0, |(free, _)| free.saturating_sub(self.kept_free))
    }

    fn malloc(&mut self, size: u64, _stream: u64) -> Result<u64, DeviceError> {
        self.check_room(size)?;
        let mut address = 0;
        call!(self.driver, mem_alloc, (&mut address, size as usize)).map_err(Self::device_error)?;
        self.taken += size;
        Ok(address)
    }

    fn free(&mut self, address: u64, size: u64) {
        self.open_gates();
        let freed = call!(self.driver, mem_free, (address));
        self.note(freed);
        self.taken = self.taken.saturating_sub(size);
    }

    fn reserve(&mut self, size: u64, _stream: u64) -> Result<u64, DeviceError> {
        let mut address = 0;
        call!(self.driver, address_reserve, (&mut address, size as usize, 0, 0, 0)).map_err(Self::device_error)?;
        Ok(address)
    }

    fn release(&mut self, address: u64, size: u64) {
        let freed = call!(self.driver, address_free, (address, size as usize));
        self.note(freed);
    }

    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.check_room(size)?;
        let pages = (0..size / page).map(|i| address + i * page);
        for at in pages.clone() {
            if let Err(error) = self.map_page(at, page) {
                for mapped in pages.clone().take_while(|&p| p < at) {
                    self.unmap_page(mapped, page);
                }
                return Err(Self::device_error(error));
            }
        }
        let access = AccessDesc { location: self.location(), flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        call!(self.driver, mem_access, (address, size as usize, &access, 1)).map_err(Self::device_error)
    }

    fn unmap(&mut self, address: u64, size: u64, page: u64) {
        // Work that writes to the pages must finish first.
        self.open_gates();
        let waited = call!(self.driver, context_sync, ());
        self.note(waited);
        for i in 0..size / page {
            self.unmap_page(address + i * page, page);
        }
    }

    fn record_event(&mut self, stream: u64) -> u64 {
        self.next_event += 1;
        let recorded = self.stream(stream).and_then(|handle| {
            let mut event: Handle = ptr::null_mut();
            // 2 is CU_EVENT_DISABLE_TIMING.
            call!(self.driver, event_create, (&mut event, 2))?;
            call!(self.driver, event_record, (event, handle))?;
            self.events.insert(self.next_event, event);
            Ok(())
        });
        self.note(recorded);
        self.next_event
    }

    fn is_event_done(&mut self, _stream: u64, event: u64) -> bool {
        let Some(&handle) = self.events.get(&event) else { return true };
        match call!(self.driver, event_query, (handle)) {
            Err(CudaError::Code(NOT_READY, _)) => return false,
            other => self.note(other),
        }
        self.events.remove(&event);
        let destroyed = call!(self.driver, event_destroy, (handle));
        self.note(destroyed);
        true
    }

    fn wait_event(&mut self, stream: u64, event: u64) {
        let Some(handle) = self.events.remove(&event) else { return };
        if let Some(gate) = self.gates.remove(&stream) {
            gate.open();
        }
        let waited = call!(self.driver, event_sync, (handle));
        self.note(waited);
        let destroyed = call!(self.driver, event_destroy, (handle));
        self.note(destroyed);
    }

    fn synchronize_stream(&mut self, stream: u64) {
        self.release_stream(stream);
    }
}

impl Card for CudaCard {
    fn touch(&mut self, address: u64, size: u64, stream: u64) {
        let queued = self.stream(stream).and_then(|handle| call!(self.driver, mem_set, (address, 1, size as usize, handle)));
        self.note(queued);
    }

    fn outside(&mut self) -> &mut dyn Outside {
        self
    }
}

impl Outside for CudaCard {
    fn info(&self) -> CardInfo {
        CardInfo {
            name: self.name.clone(),
            index: self.index,
            total: self.total,
            free: self.free_at_start,
            kept_free: self.kept_free,
            is_simulated: false,
        }
    }

    fn sample(&mut self) -> Sample {
        let used = self.memory().ok().map(|(free, total)| total.saturating_sub(free));
        // The size of the context was measured from outside, and everything taken since is known exactly.
        let pool = if self.pool.is_some() { self.pool_reserved() } else { 0 };
        let own = (self.context > 0).then_some(self.context + self.taken + pool);
        let process = own.or_else(|| self.nvml.as_ref().and_then(Nvml::own_process));
        let others = used.zip(process).map(|(u, p)| u.saturating_sub(p));
        Sample { time_us: now_us(), used, process, others, ..Sample::default() }
    }

    fn hold_stream(&mut self, stream: u64) -> Result<(), DeviceError> {
        let handle = self.stream(stream).map_err(Self::device_error)?;
        let gate = Arc::new(Gate::default());
        let argument = Gate::argument(&gate);
        if let Err(error) = call!(self.driver, host_function, (handle, gate::wait, argument)) {
            // SAFETY: the driver refused the argument, so its counted reference is ours again.
            drop(unsafe { Arc::from_raw(argument.cast::<Gate>().cast_const()) });
            return Err(Self::device_error(error));
        }
        self.gates.insert(stream, gate);
        Ok(())
    }

    fn release_stream(&mut self, stream: u64) {
        if let Some(gate) = self.gates.remove(&stream) {
            gate.open();
        }
        let waited = self.stream(stream).and_then(|handle| call!(self.driver, stream_sync, (handle)));
        self.note(waited);
    }

    fn take_outside(&mut self, size: u64) -> Result<(), DeviceError> {
        let address = self.malloc(size, 0)?;
        self.outside.push((address, size));
        self.touch(address, size, 0);
        Ok(())
    }

    fn give_outside_back(&mut self) {
        for (address, size) in std::mem::take(&mut self.outside) {
            self.free(address, size);
        }
    }

    fn pin(&mut self, size: u64) -> Result<u64, DeviceError> {
        let mut address: *mut c_void = ptr::null_mut();
        call!(self.driver, host_alloc, (&mut address, size as usize, 0)).map_err(Self::device_error)?;
        Ok(address as u64)
    }

    fn unpin(&mut self, address: u64, _size: u64) {
        let freed = call!(self.driver, host_free, (address as *mut c_void));
        self.note(freed);
    }

    fn set_pool_keeps(&mut self, keeps: bool) -> Result<(), DeviceError> {
        let pool = self.pool().map_err(Self::device_error)?;
        let mut threshold: u64 = if keeps { u64::MAX } else { 0 };
        call!(self.driver, pool_set, (pool, RELEASE_THRESHOLD, (&raw mut threshold).cast())).map_err(Self::device_error)
    }

    fn pool_alloc(&mut self, size: u64) -> Result<u64, DeviceError> {
        self.check_room(size)?;
        let mut address = 0;
        call!(self.driver, alloc_async, (&mut address, size as usize, ptr::null_mut())).map_err(Self::device_error)?;
        Ok(address)
    }

    fn pool_free(&mut self, address: u64, _size: u64) {
        let freed = call!(self.driver, free_async, (address, ptr::null_mut()));
        self.note(freed);
    }

    fn pool_reserved(&mut self) -> u64 {
        let mut held: u64 = 0;
        let read = self.pool().and_then(|pool| call!(self.driver, pool_get, (pool, RESERVED_NOW, (&raw mut held).cast())));
        match read {
            Ok(()) => held,
            Err(error) => {
                self.note(Err(error));
                0
            }
        }
    }

    fn synchronise(&mut self) {
        self.open_gates();
        let waited = call!(self.driver, context_sync, ());
        self.note(waited);
    }

    fn add_neighbour(&mut self, size: u64) -> Result<(), DeviceError> {
        let failed = |what: String| DeviceError::Failed(format!("another process could not be started: {what}"));
        let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let mut child = Command::new(program)
            .args(["probe", "--neighbour", &size.to_string(), "--device", &self.index.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let mut answer = String::new();
        if let Some(out) = child.stdout.take() {
            let read = std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut answer);
            read.map_err(|e| failed(e.to_string()))?;
        }
        self.neighbours.push(child);
        match answer.trim() {
            "ready" => Ok(()),
            "" => Err(failed("it ended at once".to_owned())),
            sentence => Err(DeviceError::Failed(sentence.to_owned())),
        }
    }

    fn clean_up(&mut self) {
        self.open_gates();
        self.give_outside_back();
        // Closing the pipe asks the neighbours to end; killing makes sure of it.
        let mut leaving = std::mem::take(&mut self.neighbours);
        for child in &mut leaving {
            drop(child.stdin.take());
        }
        let until = Instant::now() + Duration::from_secs(5);
        for mut child in leaving {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn two_counts(&mut self) -> Option<(u64, u64)> {
        let (free, total) = self.memory().ok()?;
        Some((self.nvml.as_ref()?.used()?, total.saturating_sub(free)))
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

impl Drop for CudaCard {
    /// Destroys the context with everything allocated in it. Errors cannot be reported here.
    fn drop(&mut self) {
        self.clean_up();
        let _ = call!(self.driver, context_sync, ());
        for (_, event) in self.events.drain() {
            let _ = call!(self.driver, event_destroy, (event));
        }
        for (_, stream) in self.streams.drain() {
            let _ = call!(self.driver, stream_destroy, (stream));
        }
        let _ = call!(self.driver, context_release, (self.device));
    }
}
