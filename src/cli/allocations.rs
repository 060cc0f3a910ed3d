//! `vramscope allocations FILE --where QUERY`: a table of the allocations that match a query.

use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::args::values::{one_of, parse_rows};
use super::oom::frames;
use super::opening::{of_device, others};
use super::rules::RulesArgs;
use super::{Opened, Table, print_json, print_of};
use vramscope_core::anatomy::steps::Steps;
use vramscope_core::model::{Progress, Recording};
use vramscope_core::query::matching::Matching;
use vramscope_core::query::ordering::Order;
use vramscope_core::query::{Asked, Query, Scope, of_text, reference};
use vramscope_core::tables::{Lifetime, LifetimeId, NO_EVENT, StackNames};
use vramscope_core::units::{Address, Bytes, count};

/// Arguments of `allocations`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "vramscope allocations --help describes what a query can be made of.", after_long_help = reference())]
pub struct AllocationsArgs {
    /// The recording
    pub file: PathBuf,
    /// Only allocations that pass, for example 'size>1MiB stack~attention live@peak'; everything when absent
    #[arg(long = "where", value_name = "QUERY", allow_hyphen_values = true, value_parser = read_query, default_value = "", hide_default_value = true)]
    pub query: (String, Query),
    /// What comes first
    #[arg(long, value_name = "COLUMN", default_value = "size", value_parser = one_of(COLUMNS))]
    pub sort: Order,
    /// Your own rules for roles
    #[command(flatten)]
    pub rules: RulesArgs,
    /// Rows shown
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = parse_rows, allow_hyphen_values = true)]
    pub limit: usize,
    /// The device, by its number in the process (cuda:N); when absent, the one that ran out of memory or else has the highest peak
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Parses a query, and refuses those that need a cursor or markers, which only the window has.
fn read_query(text: &str) -> Result<(String, Query), String> {
    let query = Query::parse(text).map_err(|e| {
        let before = text.get(..e.at.start).map_or(0, |t| t.chars().count());
        // In a query of one term the position is obvious.
        if before == 0 { e.sentence } else { format!("at character {}: {}", before + 1, e.sentence) }
    })?;
    if query.follows_cursor() || query.follows_markers() {
        return Err("it names the window's cursor or markers: use the number of an event, peak, oom or end".to_owned());
    }
    Ok((text.to_owned(), query))
}

const COLUMNS: [(&str, &str, Order); 8] = [
    ("size", "Most bytes asked for first", Order::Size),
    ("block", "Largest block first", Order::Block),
    ("born", "Oldest first", Order::Born),
    ("gone", "First freed first", Order::Gone),
    ("age", "Longest lived first", Order::Age),
    ("address", "By address", Order::Address),
    ("stack", "By name of the stack", Order::Stack),
    ("role|category", "By role", Order::Role),
];

/// Runs the subcommand.
pub fn run(args: &AllocationsArgs, out: &mut dyn Write) -> Result<(), String> {
    let (text, query) = &args.query;
    let opened = Opened::blocks(&args.file, args.device)?;
    let roles = opened.roles(&args.rules)?;
    let (recording, device, tables) = (&opened.recording, opened.device(), &opened.tables);
    let progress = Progress::new();
    let cancelled = |e: vramscope_core::model::Cancelled| e.to_string();
    let steps = Steps::find(recording, device, tables);
    let scope = Scope { roles: Some(&roles), steps: Some(&steps), ..Scope::new(recording, device, tables) };
    let rows = query.allocations(&scope, &progress).map_err(cancelled)?;
    let matching = Matching::of(device, tables, rows, &progress).map_err(cancelled)?;
    // Says what the query names in vain, also when another alternative in it matches.
    let why = match matching.is_empty() {
        true => query.why_none(&scope, Asked::Allocations, &progress).map_err(cancelled)?,
        false => query.not_there(&scope),
    };
    let names = StackNames::of(&recording.stacks);
    let order = args.sort;
    let sorted = order.sort(order.begins_descending(), matching.rows().to_vec(), &scope, &names, &progress).map_err(cancelled)?;
    let listed: Vec<Lifetime> =
        sorted.iter().take(args.limit).filter_map(|&row| tables.lifetimes.get(device, LifetimeId(row))).collect();
    let (peak, peak_event) = matching.peak();
    let at_device_peak = matching.bytes_at(device, tables, tables.curves.peak_event());
    let event = |e: u32| (e != NO_EVENT).then_some(e);
    if args.json {
        let row = |l: &Lifetime| row_json(recording, &scope, l);
        let report = json!({
            "file": args.file.display().to_string(), "device": {"index": device.id.index, "kind": device.id.kind.name()},
            "where": text, "truncated": opened.is_truncated(), "contradiction": tables.disagreement, "matches": matching.len(), "why": why, "allocations": tables.lifetimes.len(),
            "allocated_bytes": matching.handed_out(),
            "peak": {"bytes": peak, "event": event(peak_event)},
            "bytes_at_peak_of_all": at_device_peak,
            "bytes_at_end": matching.bytes_at(device, tables, opened.last_event()),
            "rows": listed.iter().map(row).collect::<Vec<Value>>(),
        });
        return print_json(out, &report);
    }
    let mut answer = of_device(recording, device);
    answer += &format!("{} allocations", of_text(matching.len(), tables.lifetimes.len()));
    if !matching.is_empty() {
        let when = event(peak_event)
            .map_or_else(|| "before the first event".to_owned(), |e| format!("after event {}", count(u64::from(e))));
        if device.events.is_empty() {
            answer += &format!(": {} live when it was dumped; the file has no history", Bytes(peak));
        } else {
            let at_peak = if at_device_peak == 0 { "nothing".to_owned() } else { Bytes(at_device_peak).to_string() };
            answer += &format!(
                ": they hold {} at most, {when}, and {at_peak} at the peak of all; {} allocated in total",
                Bytes(peak),
                Bytes(matching.handed_out()),
            );
        }
    }
    answer += "\n\n";
    let mut table = Table::new("lrrrrll");
    table.row(["  address", "size", "block", "born", "gone", "role", "allocated at"]);
    for l in &listed {
        let at = |e: u32, none: &str| event(e).map_or_else(|| none.to_owned(), |e| count(u64::from(e)));
        table.row([
            if recording.addresses().is_known() {
                format!("  {}_{}", Address(l.address), tables.lifetimes.generation(device, l.id))
            } else {
                "  not told".to_owned()
            },
            if device.can_show.requested.is_known() { Bytes(l.requested).to_string() } else { "not recorded".to_owned() },
            Bytes(l.block).to_string(),
            at(l.born, "before"),
            at(l.gone, "kept"),
            roles.of(l.id).words(roles.is_probable(device, tables, l.id)),
            names.of_stack(l.stack).to_owned(),
        ]);
    }
    for sentence in &why {
        answer += &format!("  {sentence}\n");
    }
    if listed.is_empty() {
        answer += if tables.lifetimes.is_empty() { "  The recording has no allocations.\n" } else { "  No allocation passes.\n" };
    } else {
        answer += &table.to_string();
    }
    if !recording.addresses().is_known() && !listed.is_empty() {
        answer += recording.addresses().why_not();
        answer.push('\n');
    }
    if listed.len() < matching.len() {
        answer += &format!("{} shown, by {}; --limit shows more\n", of_text(listed.len(), matching.len()), order.name());
    }
    answer += &others(recording, device);
    print_of(out, &[opened.about()], &answer)
}

fn row_json(recording: &Recording, scope: &Scope<'_>, l: &Lifetime) -> Value {
    let event = |e: u32| (e != NO_EVENT).then_some(e);
    let time =
        |e: u32| event(e).filter(|_| scope.device.events.has_time).and_then(|e| scope.device.events.time_us.get(e as usize));
    let why = scope.roles.map(|c| c.why(recording, scope.device, scope.tables, l.id));
    json!({
        "id": l.id.0, "address": recording.addresses().is_known().then_some(l.address),
        "generation": recording.addresses().is_known().then(|| scope.tables.lifetimes.generation(scope.device, l.id)),
        "requested_bytes": scope.device.can_show.requested.is_known().then_some(l.requested), "bytes": l.block,
        "born": event(l.born), "free_requested": event(l.free_requested), "gone": event(l.gone),
        "born_us": time(l.born), "gone_us": time(l.gone),
        "stream": scope.device.streams.get(usize::from(l.stream.0)), "pool": scope.device.pool_key(l.pool).map(|(a, b)| [a, b]),
        "class": l.class.name(), "step": event(l.born).and_then(|e| scope.steps.and_then(|s| s.of(e))),
        "category": why.as_ref().map(|w| w.role.name()),
        "category_from": why.as_ref().map(|w| w.trust.name()), "why": why.map(|w| w.sentence),
        "stack": frames(recording, l.stack),
    })
}
