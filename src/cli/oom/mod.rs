//! `vramscope oom FILE`: why each request failed, which blocks were in the way, and what would have helped. For a recording
//! without a failure: how close it came.

mod entries;
mod limit;
mod text;

use self::entries::{BlockEntry, BlockerEntry, HolderEntry, LiveEntry, RoleEntry, RoomPlanEntry};
pub use self::entries::{OomEntry, OomReport, PeakEntry, WhatIfEntry};
use super::args::OomArgs;
use vramscope_core::anatomy::roles::{ByRole, Role, Roles, Rules};
use vramscope_core::anatomy::{Composition, made_at};
use vramscope_core::diagnose::findings::examined;
use vramscope_core::diagnose::fragmentation::{Blocker, RoomPlan, Servers};
use vramscope_core::diagnose::oom::{
    AUTOMATIC_TRIALS_MOST_EVENTS, Autopsy, Closest, Failure, Helped, LiveByStack, RoomFrom, Verdict, advice, age,
    can_be_served_again, closest, examine, what_to_make_smaller, what_would_have_helped, with_what_to_make_smaller,
};
use vramscope_core::inference::{Caps, WhatIf};
use vramscope_core::model::{BlockState, DeviceRecording, Progress, Recording, StackId};
use vramscope_core::tables::{DeviceTables, NO_EVENT, Quantity, StackNames, State, folded_frames, frame_text, user_frame};

/// Most stacks listed; the rest is counted.
const LISTED: usize = 20;
/// Most blockers listed; the rest is counted. Blocks to free are all listed.
const BLOCKERS: usize = 200;

/// Runs the subcommand.
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
    let about =
        super::printing::About { recording: &recording, contradiction: Some(contradictions.as_str()).filter(|c| !c.is_empty()) };
    Ok(super::printing::with_caveats(&[about], &text::text(&report, &recording, args.all)))
}

/// Examines every failure of every device, and the peak of devices without one. Other settings are simulated when something
/// failed and the recording is short, or always with `try_settings`. `rules` are the user's role rules.
pub fn report(recording: &Recording, try_settings: bool, rules: &Rules, progress: &Progress) -> Result<OomReport, String> {
    let names = StackNames::of(&recording.stacks);
    let mut report = OomReport { truncated: recording.report.truncated().is_some(), ..OomReport::default() };
    for device in recording.busiest_first().into_iter().map(|i| &recording.devices[i]) {
        let tables = DeviceTables::build(device, progress).map_err(|e| e.to_string())?;
        add(&mut report, recording, device, &tables, &names, try_settings, rules, progress)?;
    }
    Ok(report)
}

/// Like [`report`], with tables that already exist, one per device.
pub(super) fn report_with(recording: &Recording, tables: &[DeviceTables], rules: &Rules) -> Result<OomReport, String> {
    let names = StackNames::of(&recording.stacks);
    let mut report = OomReport { truncated: recording.report.truncated().is_some(), ..OomReport::default() };
    for (device, tables) in recording.busiest_first().into_iter().filter_map(|i| Some((&recording.devices[i], tables.get(i)?))) {
        add(&mut report, recording, device, tables, &names, false, rules, &Progress::new())?;
    }
    Ok(report)
}

/// Adds the failures and the peak of one device.
fn add(
    report: &mut OomReport,
    recording: &Recording,
    device: &DeviceRecording,
    tables: &DeviceTables,
    names: &StackNames,
    try_settings: bool,
    rules: &Rules,
    progress: &Progress,
) -> Result<(), String> {
    let all = device.events.ooms();
    // A program that catches its failures may have thousands, and each takes long to examine.
    let events = examined(device, tables, &all);
    let left_out = all.len() - events.len();
    report.ooms_left_out += left_out;
    report.contradictions.extend(tables.disagreement.clone());
    let roles = Roles::build(recording, device, tables, rules, progress).map_err(|e| e.to_string())?;
    report.changed_by_rules += roles.changed.count;
    report.rules_sentences.extend(roles.changed.rules_sentence());
    let caps = Caps::of(device, None, progress).map_err(|e| e.to_string())?;
    let autopsies: Vec<Autopsy> = events
        .iter()
        .filter_map(|&event| examine(device, tables, event, &tables.states.at(device, &tables.lifetimes, event), &caps))
        .collect();
    // No setting helps when every request is larger than all memory.
    let may_help = autopsies.iter().any(|a| a.verdict != Verdict::TooLarge);
    let helped = if try_settings || (may_help && device.events.len() <= AUTOMATIC_TRIALS_MOST_EVENTS) {
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
        let at = At { recording, device, tables, names, roles: &roles, state: &state, servers: &autopsy.servers };
        report.ooms.push(at.failure(autopsy, helped.as_ref()));
    }
    report.ooms_without_figures += all.len() - left_out - autopsies.len();
    if all.is_empty()
        && let Some(found) = closest(device, tables)
    {
        let state = tables.states.at(device, &tables.lifetimes, found.event);
        let at = At { recording, device, tables, names, roles: &roles, state: &state, servers: &found.servers };
        report.peaks.push(at.peak(&found));
    }
    report.whatif.extend(helped.map(|h| whatif(device, h)));
    Ok(())
}

/// Why other settings were not simulated on a device. `what_does` completes the sentence with what simulates them.
pub(super) fn not_tried(device: &DeviceRecording, what_does: &str) -> String {
    let (events, most) = (device.events.len() as u64, AUTOMATIC_TRIALS_MOST_EVENTS as u64);
    format!(
        "Other settings were not tried on the {} events of {}: beyond {} that takes longer than one would wait unasked; {what_does}",
        vramscope_core::units::count(events),
        device.id,
        vramscope_core::units::count(most),
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
    let (warning, is_of_device, fails_as_recorded) = (h.warning(), h.is_of_device(), h.fails_as_recorded());
    WhatIfEntry {
        device: device.id.index,
        ends_at_failure: h.remedies.ends_at_failure,
        warning,
        fails_as_recorded,
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

/// The instant and the request that are examined.
struct At<'a> {
    recording: &'a Recording,
    device: &'a DeviceRecording,
    tables: &'a DeviceTables,
    names: &'a StackNames,
    roles: &'a Roles,
    state: &'a State,
    servers: &'a Servers,
}

impl At<'_> {
    /// A live block in a segment, both by their index in the state.
    fn block(&self, block: usize, segment: usize) -> BlockEntry {
        let (block, segment) = (&self.state.blocks[block], &self.state.segments[segment]);
        let age = age(self.device, &self.tables.lifetimes, block.lifetime, self.state.event);
        let stack = self.tables.lifetimes.stack(self.device, block.lifetime);
        let role = self.roles.of(block.lifetime);
        let has_stack = self.names.index(stack).is_some();
        BlockEntry {
            address: block.address,
            bytes: block.size,
            stream: self.device.stream_handle(segment.stream),
            pending_free: block.state == BlockState::PendingFree,
            whose: self.servers.whose(self.device, segment),
            age_events: age.events,
            age_us: age.micros,
            age: age.to_string(),
            stack: frames(self.recording, stack),
            role: role.name(),
            role_is_probable: self.roles.is_probable(self.device, self.tables, block.lifetime),
            place: if has_stack { made_at(&self.recording.stacks, self.names, stack, role) } else { String::new() },
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

    fn peak(&self, c: &Closest) -> PeakEntry {
        let At { recording, device, tables, .. } = *self;
        PeakEntry {
            device: device.id.index,
            label: device.id.to_string(),
            most_reserved: tables.curves.peak(Quantity::Reserved),
            has_segments: c.has_segments,
            event: (c.event != NO_EVENT).then_some(c.event),
            reserved_bytes: c.reserved,
            active_bytes: c.active,
            allocated_bytes: c.allocated,
            requested_bytes: device.can_show.requested.is_known().then_some(c.live_requested),
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
            blockers: self.blockers(&c.blockers),
            blockers_total: c.blockers.len(),
            top_live: live(recording, &c.top_live),
            stacks_total: c.top_live.len(),
            live_by_category: by_role(device, &self.roles.live_by_role(device, tables, c.event)),
            held: self.held(),
        }
    }

    fn failure(&self, a: &Autopsy, helped: Option<&Helped>) -> OomEntry {
        let At { recording, device, tables, state, roles, .. } = *self;
        let held = self.held();
        let smaller = what_to_make_smaller(a, &held, &recording.stacks);
        let of_program = Failure { recording, device, tables, roles, autopsy: a }.advice();
        OomEntry {
            device: device.id.index,
            has_segments: a.has_segments,
            event: a.event,
            is_last: device.events.last_oom() == Some(a.event),
            survived: a.survived,
            cap_below: a.cap_below(),
            requested_bytes: a.requested,
            segment_bytes: a.segment,
            device_free_bytes: a.device_free_known(),
            reserved_bytes: a.reserved,
            allocated_bytes: a.allocated,
            hole_bytes: a.holes.bytes,
            holes: a.holes.count,
            largest_hole_bytes: a.holes.largest,
            other_hole_bytes: a.all_holes.bytes.saturating_sub(a.holes.bytes),
            pool: a.class.name(),
            stream: self.device.stream_handle(a.servers.stream.unwrap_or_default()),
            limit_span_bytes: a.limit.map(|r| [r.least, r.most]),
            holders: a.holders().into_iter().map(|(name, bytes)| HolderEntry { name, bytes }).collect(),
            tried_bytes: a.message_bytes(),
            verdict: a.verdict.name(),
            headline: a.headline(),
            sentence: a.sentence.clone(),
            stack: frames(recording, a.stack),
            requested_at: user_frame(&recording.stacks, a.stack).map(|f| frame_text(&recording.stacks, f)),
            shown_stack: folded_frames(&recording.stacks, a.stack),
            blockers: self.blockers(&a.blockers),
            blockers_total: a.blockers.len(),
            enough_alone: a.alone.count,
            smallest_alone_bytes: a.alone.smallest.map(|s| s.size),
            alone_sentence: a.alone_sentence(),
            way_out: a.room_plan.as_ref().map(|w| RoomPlanEntry {
                by: w.by(),
                sentence: w.sentence(a.words),
                blocks: w.blocks.len(),
                bytes: w.bytes,
                blocks_to_free: self.blocks_to_free(w),
                segments: w.segments.len(),
                pages: w.pages,
                room_bytes: w.room,
                is_optimal: w.is_optimal,
                cap_bytes: w.least_cap.or_else(|| w.with_more.and(a.limit).map(|cap| cap.least)),
                with_higher_cap: w.with_more,
                search: w.search(),
                is_too_long: a.one_instead().is_some(),
                why: w.why(),
            }),
            way_out_sentence: a.room_plan_sentence(state),
            is_simply_full: a.is_simply_full(),
            way_out_needs: a.room_plan_needs(state, |id| roles.of(id)),
            top_live: live(recording, &a.top_live),
            stacks_total: a.top_live.len(),
            live_by_category: by_role(device, &roles.live_by_role(device, tables, a.event)),
            remedies: of_program.into_iter().chain(with_what_to_make_smaller(a, advice(a, helped), smaller)).collect(),
            held,
        }
    }

    fn held(&self) -> Composition {
        Composition::at(self.recording, self.device, self.tables, self.names, self.roles, self.state.event, |_| true)
    }

    fn blocks_to_free(&self, plan: &RoomPlan) -> Vec<BlockEntry> {
        let blocks = plan.by_size(self.state).into_iter();
        blocks.filter_map(|block| Some(self.block(block, self.state.segment_of(block)?))).collect()
    }
}

/// Roles that hold memory, most bytes first.
fn by_role(device: &DeviceRecording, sums: &ByRole) -> Vec<RoleEntry> {
    let tells_requested = device.can_show.requested.is_known();
    let mut held: Vec<RoleEntry> = Role::ALL
        .iter()
        .map(|c| (c, sums[c.index()]))
        .map(|(c, sum)| RoleEntry {
            category: c.name(),
            bytes: sum.block_bytes,
            requested_bytes: tells_requested.then_some(sum.bytes),
            count: sum.count,
        })
        .filter(|c| c.count > 0)
        .collect();
    held.sort_by_key(|c| std::cmp::Reverse(c.bytes));
    held
}

fn live(recording: &Recording, found: &[LiveByStack]) -> Vec<LiveEntry> {
    let listed = found.iter().take(LISTED);
    listed.map(|l| LiveEntry { bytes: l.bytes, count: l.count, stack: frames(recording, l.stack) }).collect()
}

/// A stack as lines, innermost first: `file:line name`.
pub fn frames(recording: &Recording, stack: StackId) -> Vec<String> {
    vramscope_core::tables::stack_text(&recording.stacks, stack).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::summary::summarise;

    /// A profiler trace does not record free memory, but it does show that a request exceeds the card.
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
        let recording = vramscope_core::formats::read(text.as_bytes(), "t.json", &Progress::new()).unwrap();
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
        // The profiler records only whole blocks.
        assert!(told["devices"][0]["requested_bytes"].is_null());
        assert_eq!(told["devices"][0]["allocated_bytes"]["peak"], 20 << 20);
    }
}
