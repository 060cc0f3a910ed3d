//! Runs the script language of the allocator vectors, and prints the same as the reference model.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::rc::Rc;

use vramscope_core::allocator::{AllocError, BlockIx, CachingAllocator, Counter, EventSink, Placement, SimulatedMemory};
use vramscope_core::model::{Action, AllocConf, BlockState, PoolKey, SizeClass, TorchVersion};

/// Names addresses by segment, and collects output lines.
#[derive(Default)]
pub struct Names {
    segments: BTreeMap<u64, u64>,
    count: u64,
    pub lines: Vec<String>,
    shows_pools: bool,
}

impl Names {
    fn name(&self, address: u64) -> String {
        if (0x6000_0000_0000..0x7000_0000_0000).contains(&address) {
            return format!("X{:x}+{}", (address >> 38) & 0xff, address & ((1 << 38) - 1));
        }
        match self.segments.range(..=address).next_back() {
            Some((base, ordinal)) => format!("S{ordinal}+{}", address - base),
            None => "0x?".to_owned(),
        }
    }
}

#[derive(Clone, Default)]
pub struct Listener(Rc<RefCell<Names>>);

impl EventSink for Listener {
    fn event(&mut self, action: Action, address: u64, size: u64, stream: u64, pool: PoolKey) {
        let mut names = self.0.borrow_mut();
        if action == Action::SegmentAlloc {
            let ordinal = names.count;
            names.count += 1;
            names.segments.insert(address, ordinal);
        }
        let place = if action == Action::Oom { address.to_string() } else { names.name(address) };
        let mut line = format!("   ev {:<14} {:<22} size={size} stream={stream:x}", action.name(), place);
        if pool != (0, 0) && names.shows_pools {
            let _ = write!(line, " pool=({},{})", pool.0, pool.1);
        }
        names.lines.push(line);
        if action == Action::SegmentFree {
            names.segments.remove(&address);
        }
    }
}

/// An allocator that a script controls.
pub struct Script {
    allocator: CachingAllocator<SimulatedMemory, Listener>,
    version: TorchVersion,
    names: Rc<RefCell<Names>>,
    live: HashMap<String, Option<BlockIx>>,
}

fn key(words: &[&str]) -> PoolKey {
    (words[1].parse().unwrap(), words[2].parse().unwrap())
}

impl Script {
    pub fn new(version: TorchVersion, total: u64, conf: &str, placement: Placement) -> Self {
        let listener = Listener::default();
        let names = Rc::clone(&listener.0);
        names.borrow_mut().shows_pools = version.is_at_least(8);
        let conf = AllocConf::parse_as(conf, version).unwrap();
        let allocator = CachingAllocator::new(SimulatedMemory::new(total, placement), listener, conf, version);
        Script { allocator, version, names, live: HashMap::new() }
    }

    fn say(&self, line: String) {
        self.names.borrow_mut().lines.push(line);
    }

    fn complain(&self, error: &AllocError) {
        let text = match error {
            AllocError::OutOfMemory(oom) => oom.message(self.version),
            other => other.to_string(),
        };
        self.say(format!("   EXC {text}"));
    }

    pub fn run(mut self, script: &str) -> Vec<String> {
        for line in script.lines() {
            if line.trim().is_empty() {
                continue;
            }
            self.say(if line.starts_with('#') { line.to_owned() } else { format!("> {line}") });
            if !line.starts_with('#') {
                self.step(line);
            }
        }
        std::mem::take(&mut self.names.borrow_mut().lines)
    }

    fn step(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let stream = |at: usize| words.get(at).map_or(0, |s| u64::from_str_radix(s, 16).unwrap());
        let result = match words[0] {
            "a" => self.allocate(words[1], words[2].parse().unwrap(), stream(3)),
            "f" => {
                if let Some(Some(block)) = self.live.remove(words[1]) {
                    self.allocator.free(block);
                }
                Ok(())
            }
            "r" => {
                if let Some(Some(block)) = self.live.get(words[1]) {
                    self.allocator.record_stream(*block, stream(2));
                }
                Ok(())
            }
            "c" => {
                self.allocator.memory.finish(stream(1));
                Ok(())
            }
            "e" if words.len() > 2 => self.allocator.release_cached(key(&words)),
            "e" => self.allocator.empty_cache(),
            "frac" => {
                self.allocator.set_memory_fraction(words[1].parse().unwrap());
                Ok(())
            }
            "pcreate" => self.allocator.create_pool(key(&words)),
            "pbegin" => {
                let filter = words.get(3).filter(|w| **w != "*").map(|s| u64::from_str_radix(s, 16).unwrap());
                self.allocator.begin_pool(key(&words), filter)
            }
            "pend" => self.allocator.end_pool(key(&words)),
            "prel" => self.allocator.release_pool_share(key(&words)),
            "uoom" => {
                self.allocator.set_use_on_oom(key(&words), words[3] != "0");
                Ok(())
            }
            "nosplit" => {
                self.allocator.set_no_split(key(&words));
                Ok(())
            }
            "set" => {
                self.allocator.set_settings(words[1]).unwrap();
                Ok(())
            }
            "mbegin" => {
                self.allocator.begin_capture();
                Ok(())
            }
            "mend" => {
                self.allocator.end_capture();
                Ok(())
            }
            "resetpeak" => {
                self.allocator.reset_peaks();
                Ok(())
            }
            "stats" => {
                self.say_stats();
                Ok(())
            }
            "s" => {
                self.say_line();
                Ok(())
            }
            "snap" => {
                self.say_segments();
                Ok(())
            }
            other => panic!("unknown operation {other}"),
        };
        if let Err(error) = result {
            self.complain(&error);
        }
    }

    fn allocate(&mut self, id: &str, size: u64, stream: u64) -> Result<(), AllocError> {
        self.live.insert(id.to_owned(), None);
        if size == 0 {
            self.say(format!("   -> {id} = 0x?"));
            return Ok(());
        }
        let block = self.allocator.malloc(size, stream)?;
        self.live.insert(id.to_owned(), Some(block));
        let name = self.names.borrow().name(self.allocator.address(block));
        self.say(format!("   -> {id} = {name}"));
        Ok(())
    }

    fn say_line(&self) {
        let s = self.allocator.stats();
        self.say(format!(
            "   res={} alloc={} act={} req={} isplit={}/{} seg={} nact={} nalloc={} | peak res={} alloc={} act={} | retries={} ooms={}",
            s.reserved_bytes.all.current,
            s.allocated_bytes.all.current,
            s.active_bytes.all.current,
            s.requested_bytes.all.current,
            s.inactive_split.all.current,
            s.inactive_split_bytes.all.current,
            s.segment.all.current,
            s.active.all.current,
            s.allocation.all.current,
            s.reserved_bytes.all.peak,
            s.allocated_bytes.all.peak,
            s.active_bytes.all.peak,
            s.num_alloc_retries,
            s.num_ooms
        ));
    }

    fn say_stats(&self) {
        let s = self.allocator.stats();
        let triple = |f: fn(&Counter) -> u64, c: &vramscope_core::allocator::PoolCounter| {
            format!("{}/{}/{}", f(&c.all), f(&c.small), f(&c.large))
        };
        // The reference prints counters in the default order of `memory_stats`.
        for (name, c) in s.pool_counters() {
            self.say(format!(
                "   st {name:<22} cur={} peak={} allocd={} freed={}",
                triple(|c| c.current, c),
                triple(|c| c.peak, c),
                c.all.allocated,
                c.all.freed
            ));
        }
        let mut line = format!(
            "   st retries={} ooms={} oversize_alloc={}(peak {}) oversize_seg={}(peak {})",
            s.num_alloc_retries,
            s.num_ooms,
            s.oversize_allocations.current,
            s.oversize_allocations.peak,
            s.oversize_segments.current,
            s.oversize_segments.peak
        );
        if self.version.is_at_least(3) {
            let _ = write!(line, " sync={} dalloc={} dfree={}", s.num_sync_all_streams, s.num_device_alloc, s.num_device_free);
        }
        self.say(line);
    }

    fn say_segments(&self) {
        for segment in self.allocator.segments() {
            let sum = |wanted: &dyn Fn(BlockState) -> bool| -> u64 {
                segment.blocks.iter().filter(|b| wanted(b.state)).map(|b| b.size).sum()
            };
            let requested: u64 = segment.blocks.iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.requested).sum();
            let kind = if segment.class == SizeClass::Small { "s" } else { "L" };
            let mut line = format!(
                "   seg {:<10} {kind}{} total={} alloc={} act={} req={requested} stream={:x}",
                self.names.borrow().name(segment.address),
                if segment.is_expandable { "X" } else { "" },
                segment.size,
                sum(&|s| s == BlockState::Active),
                sum(&|s| s != BlockState::Inactive),
                segment.stream
            );
            if segment.pool != (0, 0) {
                let _ = write!(line, " pool=({},{})", segment.pool.0, segment.pool.1);
            }
            line.push_str(" :");
            for b in &segment.blocks {
                let state = match b.state {
                    BlockState::Active => "A",
                    BlockState::PendingFree => "P",
                    BlockState::Inactive => "f",
                };
                let _ = write!(line, " [{state} {} r{}]", b.size, b.requested);
            }
            self.say(line);
        }
    }
}
