//! The text output of `summary`: the answer in the first line, followed by figures.

use super::{Bands, DeviceSummary, Level, Oom, Summary};
use crate::cli::watched::Watched;
use crate::cli::{Table, quoted};
use vramscope_core::diagnose::counted::{GROUPS, HOST_GROUPS, SCALARS};
use vramscope_core::diagnose::source_limits::{clock_span, clock_time};
use vramscope_core::diagnose::stats_check::StatsVerdict;
use vramscope_core::model::{Clock, MemoryStats, StatsKind, WarningKind};
use vramscope_core::units::{Bytes, MEBIBYTE, Micros, SizeColumn, count, counted, told_apart};

/// Most out-of-memory events listed; the last ones.
const OOMS: usize = 5;

pub(super) fn of(s: &Summary) -> String {
    let caveat = s.load.caveat.as_ref().map(|caveat| format!("{caveat}: ")).unwrap_or_default();
    let first = s.devices.iter().filter_map(|d| d.doing.as_ref()).find(|doing| doing.is_beside_the_point());
    let mut out = match first {
        Some(doing) => format!("{}: {}  {caveat}{}\n", s.file, doing.limit("").trim_start(), headline(s)),
        None => format!("{}: {caveat}{}\n", s.file, headline(s)),
    };
    if s.never_ran {
        out += "  This run was predicted and never made.\n";
    }
    let is_one = s.devices.len() == 1;
    for (device, doing) in s.in_order().filter(|d| matters(s, d)).filter_map(|d| Some((d, d.doing.as_ref()?))) {
        let whose = if is_one { String::new() } else { format!("{}: ", device.label) };
        if failed(s).is_some_and(|(device, _)| !device.is_over_failures) {
            out += &format!("  {whose}{}.\n", doing.peak());
        }
        let limit = doing.limit("");
        match s.devices.iter().filter_map(|d| d.doing.as_ref()).filter(|d| d.limit("") == limit).count() {
            // A limitation that several devices share is printed once.
            _ if out.contains(limit.trim_start()) => {}
            2.. => out += &limit,
            _ => out += &doing.limit(&whose),
        }
        out += &doing.leak(&whose);
        out += &doing.steps(&whose);
    }
    let read = Micros((s.load.seconds * 1e6) as i64);
    out += &format!("  {}, {}, {}, read in {read}\n", s.format, Bytes(s.load.bytes), counted(s.load.events, "event", "events"));
    if s.counters.is_empty() {
        let has_any = s.devices.iter().any(|d| !is_empty(d));
        for device in s.in_order().filter(|d| !has_any || !is_empty(d)) {
            out += &device_text(device);
            let whose = if is_one { String::new() } else { format!("{}: ", device.label) };
            let doing = device.doing.as_ref().filter(|_| matters(s, device));
            out += &doing.map_or_else(String::new, |doing| doing.lines(&whose, device.events == 0));
        }
    }
    for (device, counted) in s.devices.iter().zip(&s.counters) {
        out += &counters_text(&device.label, &counted.stats);
    }
    for added in &s.added {
        out += &format!("\n  added {}\n  it brought {}\n", added.sentence, listed(&added.join.gained()));
    }
    for verdict in &s.stats {
        out += &stats_text(verdict);
    }
    for w in &s.load.warnings {
        let times = if w.count > 1 { format!(" ({})", counted(w.count, "time", "times")) } else { String::new() };
        out += &format!("  note: {}{times}\n", w.text);
    }
    out
}

/// The counters of one device by pool, in the order of `memory_summary()`.
fn counters_text(label: &str, stats: &MemoryStats) -> String {
    let is_host = stats.kind == StatsKind::Host;
    let (groups, columns): (&[(&str, &str)], &[(&str, &str)]) = if is_host {
        (&HOST_GROUPS, &[("current", "current"), ("peak", "peak")])
    } else {
        let pools: &[(&str, &str)] = &[
            ("current", "all.current"),
            ("large pool", "large_pool.current"),
            ("small pool", "small_pool.current"),
            ("peak", "all.peak"),
        ];
        (&GROUPS, pools)
    };
    let size = SizeColumn::of(stats.values.iter().filter(|(key, _)| key.contains("bytes")).map(|(_, c)| c.value));
    let figure = |key: &str| {
        let value = stats.get(key).map(|c| c.value);
        value.map_or_else(String::new, |n| if key.contains("bytes") { size.sized(n) } else { count(n) })
    };
    let mut table = Table::new(if is_host { "lrr" } else { "lrrrr" });
    table.row(std::iter::once(label).chain(columns.iter().map(|c| c.0)));
    let pools = stats.private_pools().into_iter().map(|pool| {
        let name = format!("reserved by private pool ({})", pool.replace('_', ", "));
        (format!("reserved_bytes_by_private_pools.{pool}"), name)
    });
    for (group, name) in groups.iter().map(|&(group, name)| (group.to_owned(), name.to_owned())).chain(pools) {
        let cells: Vec<String> = columns.iter().map(|(_, suffix)| figure(&format!("{group}.{suffix}"))).collect();
        if cells.iter().any(|c| !c.is_empty()) {
            table.row(std::iter::once(format!("  {name}")).chain(cells));
        }
    }
    for (key, name) in SCALARS.iter().filter(|(key, _)| stats.get(key).is_some() && !key.contains("_time.")) {
        table.row([format!("  {name}"), figure(key)]);
    }
    let rounded = stats.values.values().any(|c| c.slack > 0);
    let note = if rounded { "  figures of memory_summary are rounded down to the unit that it printed\n" } else { "" };
    format!("\n{table}{note}")
}

/// `a, b and c`; `nothing new` for an empty list.
fn listed(items: &[String]) -> String {
    match items {
        [] => "nothing new".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The verdict, and the counters that disagree.
fn stats_text(v: &StatsVerdict) -> String {
    let mut out = format!("\n  counters: {}\n", v.sentence);
    if v.failed > 0 {
        let mut table = Table::new("lrr");
        table.row(["    counter", "PyTorch counted", "the snapshot holds"]);
        for c in v.checks.iter().filter(|c| !c.agrees) {
            let figures = [c.counted, c.found];
            let [counted, found] = if c.key.contains("bytes") { told_apart(figures) } else { figures.map(count) };
            table.row([format!("    {}", c.key), counted, found]);
        }
        out += &table.to_string();
    }
    out
}

fn bands_text(b: &Bands, clock: Clock) -> String {
    let mut table = Table::new("lrrr");
    table.row(["  by category", "most", "at the peak", "at the end"]);
    let size = SizeColumn::of(b.categories.iter().flat_map(|band| [band.most_bytes, band.end_bytes]));
    for band in b.categories.iter().filter(|band| band.most_bytes > 0) {
        table.row([
            format!("    {}", band.category.replace('_', " ")),
            size.sized(band.most_bytes),
            size.sized(band.at_peak_bytes),
            size.sized(band.end_bytes),
        ]);
    }
    let (time, of) = clock_time(clock, b.peak_time_us);
    format!("{table}    together {} at most, at {time}{of}\n", Bytes(b.peak_bytes))
}

/// The last failure of the first device that has one.
fn failed(s: &Summary) -> Option<(&DeviceSummary, &Oom)> {
    s.in_order().find_map(|d| Some((d, d.ooms.last()?)))
}

/// The answer in one or two sentences.
fn headline(s: &Summary) -> String {
    let total: usize = s.devices.iter().map(|d| d.ooms.len()).sum();
    match failed(s) {
        Some((device, oom)) if device.is_over_failures => {
            let (event, size) = (count(u64::from(oom.event)), Bytes(oom.requested_bytes));
            let which = match total {
                1 => format!("A request for {size} failed at event {event}"),
                _ => format!("{} requests failed, the last at event {event} for {size}", count(total as u64)),
            };
            format!("{} {which}, and the program went on. Why: vramscope oom {}", peaks(s), quoted(&s.file))
        }
        Some((device, oom)) => {
            let more = if total > 1 { format!(" (the last of {total} out-of-memory events)") } else { String::new() };
            let why = match &oom.why {
                Some(why) => format!("{}{}", why[..1].to_lowercase(), &why[1..]),
                None => format!("a request for {} failed.", Bytes(oom.requested_bytes)),
            };
            format!(
                "{} ran out of memory at event {}{more}: {why} What to do: vramscope oom {}",
                device.label,
                count(u64::from(oom.event)),
                quoted(&s.file)
            )
        }
        None => peaks(s),
    }
}

fn peaks(s: &Summary) -> String {
    if let [one] = &s.counters[..] {
        return one.sentence.clone();
    }
    if !s.counters.is_empty() {
        let each = s.devices.iter().zip(&s.counters).map(|(d, c)| format!("{}: {}", d.label, c.sentence));
        return each.collect::<Vec<_>>().join(" ");
    }
    let (empty, held): (Vec<&DeviceSummary>, Vec<&DeviceSummary>) = s.in_order().partition(|d| is_empty(d));
    // When all devices are empty, each one says so.
    if held.is_empty() && !empty.is_empty() {
        return format!("{}.", empty.into_iter().map(peak).collect::<Vec<_>>().join(". "));
    }
    let mut peaks: Vec<String> = held.into_iter().filter(|d| matters(s, d)).map(peak).collect();
    if !empty.is_empty() {
        let names: Vec<String> = empty.iter().map(|d| d.label.clone()).collect();
        peaks.push(format!("No memory on {}", listed(&names)));
    }
    if peaks.is_empty() {
        let why = s.load.warnings.iter().find(|w| w.kind == WarningKind::Skipped).map(|w| w.text.trim_end_matches('.'));
        return format!("{}.", why.unwrap_or("it has no events and no segments: nothing was on a GPU, or recording was off"));
    }
    format!("{}.", peaks.join(". "))
}

/// True for a device that never held anything.
fn is_empty(d: &DeviceSummary) -> bool {
    let holds = d.segments > 0 || d.active_bytes.peak > 0 || d.reserved_bytes.peak > 0 || !d.ooms.is_empty();
    !holds && d.bands.is_none() && d.watched.is_none()
}

/// False for a device that held almost nothing compared with another, such as a few bytes beside gigabytes. Its table still has
/// the figures.
fn matters(s: &Summary, d: &DeviceSummary) -> bool {
    // A 2 MiB segment for a few bytes also counts as almost nothing.
    let bytes = |d: &DeviceSummary| if d.active_bytes.peak > 0 { d.active_bytes.peak } else { d.reserved_bytes.peak };
    let most = s.devices.iter().map(bytes).max().unwrap_or(0);
    bytes(d) >= MEBIBYTE || bytes(d).saturating_mul(100) >= most
}

/// A device's peak and its reserved memory, without a full stop.
pub(in crate::cli) fn peak(d: &DeviceSummary) -> String {
    match &d.bands {
        Some(b) if d.events == 0 => return format!("tensors took at most {}", Bytes(b.peak_bytes)),
        None if d.events == 0 && d.watched.is_some() => {
            return format!("{} {}", d.label, d.watched.as_ref().map(Watched::sentence).unwrap_or_default());
        }
        _ => {}
    }
    if d.relative {
        return format!(
            "{} held at most {} of what the trace shows; it has no totals, so what was held before is unknown",
            d.label,
            Bytes(tensors(d).peak)
        );
    }
    let held = match &d.doing {
        Some(doing) => doing.peak().to_owned(),
        None => format!("{} at the peak", Bytes(d.active_bytes.peak)),
    };
    let reserved = match knows_reserved(d) {
        // A memory timeline has no segments.
        false => "What was reserved is not recorded".to_owned(),
        true if d.active_bytes.peak > d.reserved_bytes.peak => format!(
            "{} reserved, less than was in use, which cannot be: the trace and its segments contradict each other",
            Bytes(d.reserved_bytes.peak)
        ),
        true if d.events == 0 => format!("{} reserved", Bytes(d.reserved_bytes.peak)),
        true => format!("{} reserved at its highest", Bytes(d.reserved_bytes.peak)),
    };
    format!("{}: {held}. {reserved}", d.label)
}

/// False when the file has tensors but no segments. Reserved bytes of zero then mean "not recorded".
pub(in crate::cli) fn knows_reserved(d: &DeviceSummary) -> bool {
    d.kind != "cpu" && (d.reserved_bytes.peak > 0 || tensors(d).peak == 0)
}

/// The memory of tensors: the requested bytes, or whole blocks when only these are known.
fn tensors(d: &DeviceSummary) -> &Level {
    d.requested_bytes.as_ref().unwrap_or(&d.allocated_bytes)
}

/// A table of reserved, active, allocated and requested memory, at the end and at the peaks.
fn levels(d: &DeviceSummary, title: &str) -> Table {
    let is_host = d.kind == "host";
    // A file of a single instant has no peaks.
    let is_state = d.events == 0;
    let mut table = Table::new(if is_state { "lrl" } else { "lrrrl" });
    let mut row = |name: &str, end: &str, peak: &str, event: &str, what: &str| match is_state {
        true => table.row([name, if end.is_empty() { peak } else { end }, what]),
        false => table.row([name, end, peak, event, what]),
    };
    row(title, if is_state { "live" } else { "at the end" }, "peak", "at event", "");
    let levels = [Some(&d.reserved_bytes), Some(&d.active_bytes), Some(&d.allocated_bytes), d.requested_bytes.as_ref()];
    let size = SizeColumn::of(levels.into_iter().flatten().flat_map(|level| [level.end, level.peak]));
    for (name, level, what) in [
        (
            "reserved",
            Some(&d.reserved_bytes),
            if is_host { "segments taken from the host" } else { "segments taken from the device" },
        ),
        ("active", Some(&d.active_bytes), "blocks until their memory is reusable"),
        ("allocated", Some(&d.allocated_bytes), "blocks until the program frees them"),
        ("requested", d.requested_bytes.as_ref(), "what the program requested, of active blocks"),
    ] {
        let Some(level) = level else {
            let what = "what the program requested: sizes here are whole blocks";
            row(&format!("  {name}"), "", "not in this file", "", what);
            continue;
        };
        let event = level.peak_event.map_or_else(|| "start".to_owned(), |e| count(u64::from(e)));
        if name == "reserved" && !knows_reserved(d) {
            row("  reserved", "", "not in this file", "", what);
            continue;
        }
        let doubt = match (level.exact, name) {
            (true, _) => "",
            (false, _) if d.relative => " (of what the trace shows)",
            (false, "requested") => " (doubtful)",
            (false, _) => " (block sizes are partly estimated)",
        };
        row(&format!("  {name}"), &size.sized(level.end), &size.sized(level.peak), &event, &format!("{what}{doubt}"));
    }
    table
}

/// One line with the counts of events, allocations and so on.
fn facts(d: &DeviceSummary) -> String {
    let mut facts = vec![counted(d.events, "event", "events"), counted(d.allocations, "allocation", "allocations")];
    if knows_reserved(d) {
        let known = if d.is_partial { " known at the end" } else { "" };
        facts.push(format!("{}{known}", counted(d.segments, "segment", "segments")));
        facts.push(format!("{}{known} ({} live)", counted(d.blocks, "block", "blocks"), count(d.live_blocks)));
        facts.push(counted(d.streams, "stream", "streams"));
        facts.push(counted(d.pools, "pool", "pools"));
    }
    if d.annotations > 0 {
        facts.push(counted(d.annotations, "annotation", "annotations"));
    }
    if d.samples > 0 {
        facts.push(counted(d.samples, "sample", "samples"));
    }
    if d.live_before > 0 {
        let when = if d.events == 0 { "live" } else { "live before the trace" };
        facts.push(format!("{} {when}", counted(d.live_before, "block", "blocks")));
    }
    facts.join(", ")
}

fn device_text(d: &DeviceSummary) -> String {
    if let Some(b) = d.bands.as_ref().filter(|_| d.events == 0 && d.segments == 0) {
        // A plotted memory timeline has only sums by category.
        return format!(
            "\n{}{}",
            bands_text(b, d.counts_from),
            format_args!("  {} of the timeline\n", counted(b.rows, "row", "rows"))
        );
    }
    let title = d.name.as_ref().map_or_else(|| d.label.clone(), |name| format!("{}, {name}", d.label));
    if let Some(w) = d.watched.as_ref().filter(|_| d.events == 0 && d.segments == 0) {
        return format!("\n{title}\n{}  {}\n", w.text(), counted(d.samples, "sample", "samples"));
    }
    let mut out = format!("\n{}  {}\n", levels(d, &title), facts(d));
    if let Some([first, last]) = d.time_us {
        let span = Micros(last.saturating_sub(first));
        out += &format!("  {}, {span}\n", clock_span(d.counts_from, first, last));
    }
    for (label, bytes) in [("device memory", d.capacity_bytes), ("limit of this process", d.limit_bytes)] {
        if let Some(bytes) = bytes {
            out += &format!("  {label}: {}\n", Bytes(bytes));
        }
    }
    if let Some(conf) = &d.alloc_conf {
        out += &format!("  allocator settings: {conf}\n");
    }
    if let Some(b) = &d.bands {
        out += &bands_text(b, d.counts_from);
    }
    let left_out = d.ooms.len().saturating_sub(OOMS);
    if left_out > 0 {
        out += &format!("  out of memory {} before these {OOMS}\n", counted(left_out as u64, "time", "times"));
    }
    for oom in d.ooms.iter().skip(left_out) {
        out += &format!(
            "  out of memory at event {}: {} requested, {}\n",
            count(u64::from(oom.event)),
            Bytes(oom.requested_bytes),
            oom.device_free_bytes
                .map_or("free on the device unknown".to_owned(), |free| format!("{} free on the device", Bytes(free)))
        );
    }
    out
}
