//! `vramscope oom FILE`: why each request failed, with the blocks in the way and what would have helped; and how close a
//! recording without a failure came.

mod limit;
mod text;

use serde::Serialize;

use super::args::OomArgs;
use crate::allocator::{Caps, Horizon, Needed, Remedy, WhatIf};
use crate::analysis::anatomy::Composition;
use crate::analysis::fragmentation::{Blocker, Servers, WayOut};
use crate::analysis::oom::{
    Advice, Autopsy, Closest, Helped, LiveByStack, RoomFrom, TRIED_UNASKED, Verdict, advice, age, can_be_served_again, closest,
    examine, what_to_make_smaller, what_would_have_helped, with_what_to_make_smaller,
};
use crate::analysis::roles::{ByRole, Role, Roles, Rules};
use crate::analysis::{
    DeviceTables, NO_EVENT, Quantity, StackNames, State, folded_frames, frame_text, named_by, tell_apart, told_place, user_frame,
};
use crate::model::{Action, BlockState, DeviceRecording, Progress, Recording, StackId, StreamId};

/// Stacks listed; the rest is counted.
const LISTED: usize = 20;
/// Blockers listed; the rest is counted. The way out is listed in full.
const BLOCKERS: usize = 200;

/// The JSON object of the command-line contract.
#[derive(Debug, Serialize)]
pub struct OomReport {
    /// True when the file ends in the middle: what came after is not known.
    pub truncated: bool,
    /// What the trace of a device says against the file's own end, a sentence each, without a full stop.
    pub contradictions: Vec<String>,
    /// One entry an out-of-memory event.
    pub ooms: Vec<OomEntry>,
    /// Failures of which the source tells too little to say why (profiler traces do not tell what was free).
    pub ooms_without_figures: usize,
    /// One entry a device in which nothing failed: its peak.
    pub peaks: Vec<PeakEntry>,
    /// One entry a device on which other settings were tried.
    pub whatif: Vec<WhatIfEntry>,
    /// Why none were tried on the others; `null` when there is nothing to say.
    pub whatif_left_out: Option<String>,
    /// Allocations that the user's own rules put into another role.
    pub changed_by_rules: u64,
    #[serde(skip)]
    rules_sentences: Vec<String>,
}

/// The settings tried on one device.
#[derive(Debug, Serialize)]
pub struct WhatIfEntry {
    device: i32,
    limit_bytes: Option<u64>,
    limit_span_bytes: Option<[u64; 2]>,
    agrees_with_recording: bool,
    /// Under its own settings a request fails after so many, of so many.
    own_oom_request: Option<u64>,
    own_requests: u64,
    tried: Vec<Remedy>,
    needed: Option<Needed>,
    needed_with_best: Option<Needed>,
    /// What a recording that ends at its failure leaves open; `null` for others.
    ends_at_failure: Option<Horizon>,
    #[serde(skip)]
    warning: String,
    /// No cap is known: the limit is what the device had for this process.
    #[serde(skip)]
    is_of_device: bool,
}

/// The instant at which a device without a failure held most. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct PeakEntry {
    device: i32,
    #[serde(skip)]
    label: String,
    /// The most that was reserved at any event, which is not always this one.
    #[serde(skip)]
    most_reserved: (u64, u32),
    /// False where segments are not in the file: what is reserved and free inside is then 0 and not known.
    has_segments: bool,
    event: Option<u32>,
    reserved_bytes: u64,
    active_bytes: u64,
    allocated_bytes: u64,
    /// Null where the file has rounded sizes and not what was asked for (PyTorch's profiler).
    requested_bytes: Option<u64>,
    hole_bytes: u64,
    holes: u64,
    largest_hole_bytes: u64,
    /// Holes of other pools, sizes and streams.
    other_hole_bytes: u64,
    /// The handle of the stream that the holes are of; null where it is the only one.
    stream: Option<u64>,
    /// Of those other holes what other streams have.
    other_streams_hole_bytes: u64,
    releasable_bytes: u64,
    room_bytes: Option<u64>,
    room_from: Option<&'static str>,
    largest_served_bytes: u64,
    is_exact: bool,
    /// The answer.
    pub sentence: String,
    blockers: Vec<BlockerEntry>,
    blockers_total: usize,
    top_live: Vec<LiveEntry>,
    stacks_total: usize,
    live_by_category: Vec<RoleEntry>,
}

/// One failed request. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct OomEntry {
    device: i32,
    /// False where segments are not in the file: what is reserved and free inside is then 0 and not known.
    has_segments: bool,
    event: u32,
    /// The last failure of its device, the one a program that ended so printed.
    is_last: bool,
    /// Something was allocated after it.
    survived: bool,
    requested_bytes: u64,
    segment_bytes: u64,
    device_free_bytes: Option<u64>,
    reserved_bytes: u64,
    allocated_bytes: u64,
    hole_bytes: u64,
    holes: u64,
    largest_hole_bytes: u64,
    /// Holes of other pools, sizes and streams.
    other_hole_bytes: u64,
    pool: &'static str,
    /// The handle of the stream that asked.
    stream: u64,
    limit_span_bytes: Option<[u64; 2]>,
    /// Who holds a full device; empty where the device was not full.
    holders: Vec<HolderEntry>,
    verdict: &'static str,
    /// The answer.
    pub sentence: String,
    stack: Vec<String>,
    /// The user's own line of it, `models.py:181 update_nodes`; null where no frame is the user's.
    requested_at: Option<String>,
    /// The user's lines of it, with framework frames counted.
    #[serde(skip)]
    told: Vec<String>,
    blockers: Vec<BlockerEntry>,
    blockers_total: usize,
    /// Blocks of which any one is enough, and the bytes of the smallest.
    enough_alone: usize,
    smallest_alone_bytes: Option<u64>,
    /// The way out with the fewest blocks, where it is not the one with the fewest bytes.
    alone_sentence: Option<String>,
    way_out: Option<WayOutEntry>,
    /// The way out in words, or why none is told.
    way_out_sentence: String,
    top_live: Vec<LiveEntry>,
    stacks_total: usize,
    live_by_category: Vec<RoleEntry>,
    /// What to do: only what a simulation or these figures support.
    remedies: Vec<Advice>,
    /// The cap that this failure rules out, with every larger one.
    #[serde(skip)]
    cap_below: Option<u64>,
}

#[derive(Debug, Serialize)]
struct HolderEntry {
    name: &'static str,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct BlockerEntry {
    #[serde(flatten)]
    block: BlockEntry,
    strands_bytes: u64,
    hole_if_freed_bytes: u64,
    /// What would go back to the device without it: the segment or the pages that it alone holds.
    returns_bytes: u64,
    /// Whether its segment can serve the request; if not, what goes back is of use and the hole is not.
    serves_request: bool,
}

/// A live block.
#[derive(Debug, Serialize)]
struct BlockEntry {
    address: u64,
    bytes: u64,
    stream: u64,
    /// The program has freed it, and another stream still uses it.
    pending_free: bool,
    /// Whose its segment is, where that cannot serve the request.
    #[serde(skip)]
    whose: Option<String>,
    age_events: Option<u32>,
    age_us: Option<i64>,
    #[serde(skip)]
    age: String,
    stack: Vec<String>,
    /// The line of it that allocates.
    #[serde(skip)]
    place: String,
}

#[derive(Debug, Serialize)]
struct RoleEntry {
    category: &'static str,
    bytes: u64,
    count: u64,
}

#[derive(Debug, Serialize)]
struct LiveEntry {
    bytes: u64,
    count: u64,
    /// The frame that tells it from another stack that begins with the same one.
    #[serde(skip)]
    by: Option<String>,
    stack: Vec<String>,
    /// The line of it that allocates.
    #[serde(skip)]
    place: String,
}

#[derive(Debug, Serialize)]
struct WayOutEntry {
    /// By what: one hole, whole segments, pages.
    by: &'static str,
    sentence: String,
    blocks: usize,
    bytes: u64,
    /// Those blocks, all of them, largest first.
    blocks_to_free: Vec<BlockEntry>,
    segments: usize,
    /// Pages of expandable segments that go back.
    pages: usize,
    room_bytes: u64,
    /// No set of fewer live bytes does it; where the cap is only known as a range, under the cap named next.
    is_optimal: bool,
    /// The cap it was computed for, where that is only the least it can be.
    cap_bytes: Option<u64>,
    /// What is enough under a higher cap that is possible too, where that is less.
    with_higher_cap: Option<HigherCapEntry>,
    search: &'static str,
    /// How it makes room, and whether less would.
    #[serde(skip)]
    why: String,
}

#[derive(Debug, Serialize)]
struct HigherCapEntry {
    from_cap_bytes: u64,
    blocks: usize,
    bytes: u64,
    is_optimal: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// One sentence when the file cannot be opened or has no such device.
pub fn run(args: &OomArgs) -> Result<String, String> {
    let progress = Progress::new();
    let mut recording = super::open_blocks(&args.file)?;
    if args.device.is_some() {
        let chosen = super::choose_device(&recording, args.device)?;
        recording.devices = vec![recording.devices.swap_remove(chosen)];
    }
    if args.limit.is_some() {
        for device in &mut recording.devices {
            device.limit = args.limit;
        }
    }
    let report = report(&recording, args.whatif, &args.rules.read()?, &progress)?;
    if let Some(limit) = args.limit {
        limit::check(limit, &recording, &report)?;
    }
    if args.json {
        return serde_json::to_string_pretty(&report).map_err(|e| e.to_string());
    }
    let contradictions = report.contradictions.join("; ");
    let about = super::About { recording: &recording, contradiction: Some(contradictions.as_str()).filter(|c| !c.is_empty()) };
    Ok(super::with_caveats(&[about], &text::text(&report, &recording, args.all)))
}

/// The autopsy of every out-of-memory event of every device, and the peak of the devices without one. Other settings are tried
/// where something failed and the recording is short, or always with `try_settings`. `rules` are the user's own for roles.
///
/// # Errors
/// When cancelled.
pub fn report(recording: &Recording, try_settings: bool, rules: &Rules, progress: &Progress) -> Result<OomReport, String> {
    let truncated = recording.report.truncated().is_some();
    let names = StackNames::of(&recording.stacks);
    let mut report = OomReport {
        truncated,
        contradictions: Vec::new(),
        ooms: Vec::new(),
        ooms_without_figures: 0,
        peaks: Vec::new(),
        whatif: Vec::new(),
        whatif_left_out: None,
        changed_by_rules: 0,
        rules_sentences: Vec::new(),
    };
    for device in &recording.devices {
        let events = device.events.ooms();
        let failures = device.events.action.iter().filter(|&&a| a == Action::Oom).count();
        let tables = DeviceTables::build(device, progress).map_err(|e| e.to_string())?;
        report.contradictions.extend(tables.disagreement.clone());
        let roles = Roles::build(recording, device, &tables, rules, progress).map_err(|e| e.to_string())?;
        report.changed_by_rules += roles.changed.count;
        report.rules_sentences.extend(roles.changed.rules_sentence());
        let caps = Caps::of(device, None, progress).map_err(|e| e.to_string())?;
        let autopsies: Vec<Autopsy> = events
            .into_iter()
            .filter_map(|event| examine(device, &tables, event, &tables.states.at(device, &tables.lifetimes, event), &caps))
            .collect();
        // What is larger than all there could be fits under no setting.
        let may_help = autopsies.iter().any(|a| a.verdict != Verdict::TooLarge);
        let helped = if try_settings || (may_help && device.events.len() <= TRIED_UNASKED) {
            try_others(device, progress)?
        } else {
            if may_help && can_be_served_again(device) {
                report.whatif_left_out = Some(not_tried(device, "--whatif does."));
            }
            None
        };
        if try_settings && let Some(why) = super::whatif::without_requests(device) {
            report.whatif_left_out = Some(format!("Other settings were not tried: {why}."));
        }
        for autopsy in &autopsies {
            let state = tables.states.at(device, &tables.lifetimes, autopsy.event);
            let mut found = entry(recording, device, &tables, &state, autopsy);
            let held = Composition::at(recording, device, &tables, &names, &roles, autopsy.event, |_| true);
            let smaller = what_to_make_smaller(autopsy, &held, &recording.stacks);
            found.remedies = with_what_to_make_smaller(advice(autopsy, helped.as_ref()), smaller);
            found.live_by_category = by_role(&roles.live_by_role(device, &tables, autopsy.event));
            report.ooms.push(found);
        }
        report.ooms_without_figures += failures - autopsies.len();
        if failures == 0
            && let Some(found) = closest(device, &tables)
        {
            let mut entry = peak(recording, device, &tables, &found);
            entry.live_by_category = by_role(&roles.live_by_role(device, &tables, found.event));
            report.peaks.push(entry);
        }
        report.whatif.extend(helped.map(|h| whatif(device, h)));
    }
    Ok(report)
}

/// Why other settings were not tried on a device, and what does it.
pub(super) fn not_tried(device: &DeviceRecording, what_does: &str) -> String {
    let (events, most) = (device.events.len() as u64, TRIED_UNASKED as u64);
    format!(
        "Other settings were not tried on the {} events of {}: beyond {} that takes longer than one would wait unasked; {what_does}",
        crate::units::count(events),
        device.id,
        crate::units::count(most),
    )
}

pub(super) fn try_others(device: &DeviceRecording, progress: &Progress) -> Result<Option<Helped>, String> {
    if !can_be_served_again(device) {
        return Ok(None);
    }
    let helped = WhatIf::new(device, None, progress).and_then(|w| what_would_have_helped(&w, progress));
    helped.map(Some).map_err(|e| e.to_string())
}

fn whatif(device: &DeviceRecording, h: Helped) -> WhatIfEntry {
    let (warning, is_of_device) = (h.warning(), h.is_of_device());
    WhatIfEntry {
        device: device.id.index,
        ends_at_failure: h.remedies.ends_at_failure,
        warning,
        is_of_device,
        limit_bytes: h.remedies.limit_bytes,
        limit_span_bytes: h.limit.map(|r| [r.least, r.most]),
        agrees_with_recording: h.remedies.agrees_with_recording,
        own_oom_request: h.own.oom_request,
        own_requests: h.requests,
        tried: h.remedies.tried,
        needed: h.remedies.needed,
        needed_with_best: h.remedies.needed_with_best,
    }
}

fn peak(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, c: &Closest) -> PeakEntry {
    let state = tables.states.at(device, &tables.lifetimes, c.event);
    PeakEntry {
        device: device.id.index,
        label: device.id.to_string(),
        most_reserved: tables.curves.peak(Quantity::Reserved),
        has_segments: c.has_segments,
        event: (c.event != NO_EVENT).then_some(c.event),
        reserved_bytes: c.reserved,
        active_bytes: c.active,
        allocated_bytes: c.allocated,
        requested_bytes: recording.tells_requested(device).then_some(c.live_requested),
        hole_bytes: c.holes.bytes,
        holes: c.holes.count,
        largest_hole_bytes: c.holes.largest,
        other_hole_bytes: c.all_holes.bytes.saturating_sub(c.holes.bytes),
        stream: c.stream.as_ref().map(|s| s.handle),
        other_streams_hole_bytes: c.stream.as_ref().map_or(0, |s| s.others.bytes),
        releasable_bytes: c.releasable,
        room_bytes: c.room.map(|r| r.bytes),
        room_from: c.room.map(|r| match r.from {
            RoomFrom::Cap => "cap",
            RoomFrom::Sample => "sample",
            RoomFrom::DeviceTotal => "device_total",
        }),
        largest_served_bytes: c.largest_served,
        is_exact: c.is_exact,
        sentence: c.sentence.clone(),
        blockers: At { recording, device, tables, state: &state, servers: &c.servers }.blockers(&c.blockers),
        blockers_total: c.blockers.len(),
        top_live: live(recording, &c.top_live),
        stacks_total: c.top_live.len(),
        live_by_category: Vec::new(),
    }
}

/// An instant of a recording, and the request that is asked about.
struct At<'a> {
    recording: &'a Recording,
    device: &'a DeviceRecording,
    tables: &'a DeviceTables,
    state: &'a State,
    servers: &'a Servers,
}

impl At<'_> {
    fn handle(&self, stream: StreamId) -> u64 {
        self.device.streams.get(usize::from(stream.0)).copied().unwrap_or(0)
    }

    /// A live block of a segment, by their places in the state.
    fn block(&self, block: usize, segment: usize) -> BlockEntry {
        let (block, segment) = (&self.state.blocks[block], &self.state.segments[segment]);
        let age = age(self.device, &self.tables.lifetimes, block.lifetime, self.state.event);
        let stack = self.tables.lifetimes.stack(self.device, block.lifetime);
        BlockEntry {
            address: block.address,
            bytes: block.size,
            stream: self.handle(segment.stream),
            pending_free: block.state == BlockState::PendingFree,
            whose: self.servers.whose(self.device, segment),
            age_events: age.events,
            age_us: age.micros,
            age: age.to_string(),
            stack: frames(self.recording, stack),
            place: told_place(&self.recording.stacks, stack),
        }
    }

    fn blockers(&self, found: &[Blocker]) -> Vec<BlockerEntry> {
        let listed = found.iter().take(BLOCKERS).map(|b| BlockerEntry {
            block: self.block(b.block, b.segment),
            strands_bytes: b.strands(),
            hole_if_freed_bytes: b.hole_if_freed(),
            returns_bytes: b.returns,
            serves_request: b.serves,
        });
        listed.collect()
    }

    fn blocks_to_free(&self, way: &WayOut) -> Vec<BlockEntry> {
        let blocks = way.by_size(self.state).into_iter();
        blocks.filter_map(|block| Some(self.block(block, self.state.segment_of(block)?))).collect()
    }
}

/// Roles that hold something, most bytes first.
fn by_role(sums: &ByRole) -> Vec<RoleEntry> {
    let mut held: Vec<RoleEntry> = Role::ALL
        .iter()
        .map(|c| RoleEntry { category: c.name(), bytes: sums[c.index()].bytes, count: sums[c.index()].count })
        .filter(|c| c.count > 0)
        .collect();
    held.sort_by_key(|c| std::cmp::Reverse(c.bytes));
    held
}

fn live(recording: &Recording, found: &[LiveByStack]) -> Vec<LiveEntry> {
    let stacks = &recording.stacks;
    let found = &found[..found.len().min(LISTED)];
    let rows: Vec<_> = found.iter().map(|l| (l.stack, told_place(stacks, l.stack))).collect();
    let apart = tell_apart(stacks, &rows);
    let listed = found.iter().zip(apart);
    listed
        .map(|(l, by)| LiveEntry {
            bytes: l.bytes,
            count: l.count,
            // Of stacks that begin with one frame it is always a caller.
            by: by.map(|by| named_by(stacks, "", Some(by))),
            stack: frames(recording, l.stack),
            place: told_place(stacks, l.stack),
        })
        .collect()
}

fn entry(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, state: &State, a: &Autopsy) -> OomEntry {
    let at = At { recording, device, tables, state, servers: &a.servers };
    OomEntry {
        device: device.id.index,
        has_segments: a.has_segments,
        event: a.event,
        is_last: device.events.last_oom() == Some(a.event),
        survived: a.survived,
        cap_below: a.cap_below(),
        requested_bytes: a.requested,
        segment_bytes: a.segment,
        device_free_bytes: a.device_free_told(),
        reserved_bytes: a.reserved,
        allocated_bytes: a.allocated,
        hole_bytes: a.holes.bytes,
        holes: a.holes.count,
        largest_hole_bytes: a.holes.largest,
        other_hole_bytes: a.all_holes.bytes.saturating_sub(a.holes.bytes),
        pool: a.class.name(),
        stream: at.handle(a.servers.stream.unwrap_or_default()),
        limit_span_bytes: a.limit.map(|r| [r.least, r.most]),
        holders: a.holders().into_iter().map(|(name, bytes)| HolderEntry { name, bytes }).collect(),
        verdict: a.verdict.name(),
        sentence: a.sentence.clone(),
        stack: frames(recording, a.stack),
        requested_at: user_frame(&recording.stacks, a.stack).map(|f| frame_text(&recording.stacks, f)),
        told: folded_frames(&recording.stacks, a.stack),
        blockers: at.blockers(&a.blockers),
        blockers_total: a.blockers.len(),
        enough_alone: a.alone.count,
        smallest_alone_bytes: a.alone.smallest.map(|s| s.size),
        alone_sentence: a.alone_sentence(),
        way_out: a.way_out.as_ref().map(|w| WayOutEntry {
            by: w.by(),
            sentence: w.sentence(a.words),
            blocks: w.blocks.len(),
            bytes: w.bytes,
            blocks_to_free: at.blocks_to_free(w),
            segments: w.segments.len(),
            pages: w.pages,
            room_bytes: w.room,
            is_optimal: w.is_optimal,
            cap_bytes: w.least_cap.or_else(|| w.with_more.and(a.limit).map(|cap| cap.least)),
            with_higher_cap: w.with_more.map(|more| HigherCapEntry {
                from_cap_bytes: more.cap,
                blocks: more.blocks,
                bytes: more.bytes,
                is_optimal: more.is_optimal,
            }),
            search: w.search(),
            why: w.why(),
        }),
        way_out_sentence: a.way_out_sentence(state),
        top_live: live(recording, &a.top_live),
        stacks_total: a.top_live.len(),
        live_by_category: Vec::new(),
        remedies: Vec::new(),
    }
}

/// A stack as lines, innermost first: `file:line name`.
#[must_use]
pub fn frames(recording: &Recording, stack: StackId) -> Vec<String> {
    crate::analysis::stack_text(&recording.stacks, stack).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::summary::summarise;

    /// A profiler trace tells no free memory; that more was asked for than the card has, it does tell.
    #[test]
    fn a_request_larger_than_the_card_of_a_trace_is_too_large() {
        let memory = |name: &str, at: u32, bytes: u64, reserved: u64| {
            format!(
                r#"{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"{name}","pid":1,"tid":1,"ts":{at},"args":{{"Total Reserved":{reserved},"Total Allocated":{reserved},"Bytes":{bytes},"Addr":140000000000000,"Device Id":0,"Device Type":1}}}}"#
            )
        };
        let text = format!(
            r#"{{"deviceProperties":[{{"id":0,"name":"Fake GPU","totalGlobalMem":2147483648}}],"traceEvents":[{},{}]}}"#,
            memory("[memory]", 1, 20 << 20, 20 << 20),
            memory("[OutOfMemory]", 2, 3 << 30, 20 << 20)
        );
        let recording = crate::formats::read(text.as_bytes(), "t.json", &Progress::new()).unwrap();
        let found = report(&recording, true, &Rules::default(), &Progress::new()).unwrap();
        assert_eq!((found.ooms.len(), found.ooms_without_figures), (1, 0));
        let oom = &found.ooms[0];
        assert_eq!((oom.verdict, oom.device_free_bytes), ("too_large", None));
        assert!(oom.sentence.replace('\u{a0}', " ").contains("which has 2 GiB in all"), "{}", oom.sentence);
        assert!(oom.way_out.is_none() && oom.smallest_alone_bytes.is_none());
        for w in &found.whatif {
            assert!(w.limit_bytes.is_none_or(|limit| limit <= 2 << 30), "{:?}", w.limit_bytes);
        }
        let told = summarise(std::path::Path::new("t.json"), &recording, Vec::new(), &[]).unwrap();
        let told = serde_json::to_value(told).unwrap();
        assert!(told["devices"][0]["ooms"][0]["device_free_bytes"].is_null());
        // The profiler writes whole blocks.
        assert!(told["devices"][0]["requested_bytes"].is_null());
        assert_eq!(told["devices"][0]["allocated_bytes"]["peak"], 20 << 20);
    }
}
