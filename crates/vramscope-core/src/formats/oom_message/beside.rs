//! What people paste beside a message: the table of `nvidia-smi`, Ray's list of processes, the kernel's and Slurm's lines.

use super::prefix::stripped;
use super::text::{Window, captured, clamped};
use super::{Figure, OomMessage, Platform, ProcessUse, Writer};
use crate::units::{GIBIBYTE, MEBIBYTE, pytorch_size};

/// Lines before and after a message that may belong to it.
const LINES: (usize, usize) = (14, 14);
/// Processes that a sentence names.
const NAMED: usize = 3;
const NAME: usize = 48;
/// Cards that a sentence names.
const FEW: usize = 8;

/// A process in a table, with its program's name and what it holds.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    gpu: u32,
    pid: u32,
    name: String,
    bytes: u64,
}

impl Listed {
    fn told(&self) -> String {
        format!("pid {} ({}) with {}", self.pid, clamped(&self.name, NAME), pytorch_size(self.bytes))
    }
}

/// The last table of `nvidia-smi` in a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cards {
    /// Index, bytes in use, bytes in all.
    cards: Vec<(u32, u64, u64)>,
    processes: Vec<Listed>,
}

pub(super) fn cards(text: &str) -> Cards {
    let mut out = Cards::default();
    let mut gpu = None;
    let is_there = text.contains("MiB /") && text.contains("Default |");
    for line in text.lines().filter(|line| is_there && line.contains('|')) {
        if line.contains("NVIDIA-SMI") {
            out = Cards::default();
        }
        let mib = |text: &str| text.parse::<u64>().ok().map(|n| n.saturating_mul(MEBIBYTE));
        if let Some([used, total]) = captured!(r"(\d+)MiB / *(\d+)MiB", line) {
            out.cards.extend(gpu.take().zip(mib(used)).zip(mib(total)).map(|((gpu, used), total)| (gpu, used, total)));
        } else if let Some([index]) = captured!(r"^[\s|]*(\d+)\s[^|]*\|.*:", line) {
            // The first line of a card: its index, its name, its bus.
            gpu = index.parse().ok().or(gpu);
        } else if let Some([gpu, pid, name, size]) =
            captured!(r"^[\s|]*(\d+)\s[^|]*?(\d+)\s+(?:C|G|C\+G|M\+C)\s+([^|]*?)\s+(\d+)MiB[\s|]*$", line)
            && let (Ok(gpu), Ok(pid), Some(bytes)) = (gpu.parse(), pid.parse(), mib(size))
        {
            // `0  N/A  N/A  4242  C  python3  20000MiB`
            out.processes.push(Listed { gpu, pid, name: name.to_owned(), bytes });
        }
    }
    out
}

/// Tells what the table shows of the message's card. Where the message does not list processes, those of the table that hold much
/// stand for them, if they and what the message counts fit on the card together.
pub(super) fn of_table(table: &Cards, message: &mut OomMessage) {
    let f = &message.figures;
    let is_near = |total: u64| f.capacity.is_none_or(|c| c.bytes.abs_diff(total) <= total / 16);
    let is_cards = |&&(gpu, _, total): &&(u32, u64, u64)| message.gpu.is_none_or(|own| own == gpu) && is_near(total);
    let is_of_card = matches!(message.dialect.platform, Platform::Cuda | Platform::Unknown) && !message.dialect.writer.is_host();
    let of_card: Vec<(u32, u64, u64)> = table.cards.iter().filter(is_cards).copied().collect();
    if !is_of_card || message.is_warning {
        return;
    }
    let &[(gpu, used, total)] = &of_card[..] else {
        let told = |&(gpu, used, total): &(u32, u64, u64)| format!("GPU {gpu} {} of {}", pytorch_size(used), pytorch_size(total));
        message.beside.extend(listing("nvidia-smi beside the message shows in use: ", of_card.iter().take(FEW).map(told)));
        return;
    };
    let mut listed: Vec<&Listed> = table.processes.iter().filter(|p| p.gpu == gpu).collect();
    listed.sort_by_key(|p| std::cmp::Reverse(p.bytes));
    let (used_of, total_of) = (pytorch_size(used), pytorch_size(total));
    let shown = format!("nvidia-smi beside the message shows {used_of} of {total_of} in use on GPU {gpu}");
    let who = listing(&format!("{shown}: "), listed.iter().take(NAMED).map(|p| p.told()));
    let mut who = who.unwrap_or_else(|| format!("{shown}."));
    if message.reserved().is_some_and(|held| used < held.low()) {
        who += " That is less than PyTorch held, so it was printed at another moment: others had at most that much then.";
        let without_others = f.free.zip(message.unallocated()).map_or(0, |(free, holes)| free.plus(holes).high() + used);
        message.seen.extend(f.requested.is_some_and(|q| q.low() > without_others).then_some("others too small"));
    }
    message.beside.push(who);
    listed.retain(|p| p.bytes >= total / 20);
    let held: u64 = listed.iter().map(|p| p.bytes).sum();
    let own = message.reserved().or(f.allocated).map_or(0, |held| held.bytes);
    let free = f.free.map_or(0, |free| free.bytes);
    let fits = held.saturating_add(own).saturating_add(free) <= total + total / 20;
    let is_bare = message.dialect.writer == Writer::RUNTIME && !message.has_figures() && used >= total / 2;
    if !message.processes.is_empty() || !fits || !(is_bare || f.capacity.is_some()) {
        return;
    }
    let figure = |bytes: u64| Figure { bytes, slack: MEBIBYTE / 2 };
    let uses = listed.iter().map(|p| ProcessUse { pid: Some(p.pid), bytes: figure(p.bytes), is_this: false });
    message.processes = uses.collect();
    if is_bare && held > 0 {
        message.figures.capacity = Some(figure(total));
        message.figures.free = Some(figure(total.saturating_sub(used)));
    }
}

/// What the lines around a message of host memory tell: who was killed, where, and who held how much.
pub(super) fn look(window: &Window<'_>, message: &mut OomMessage) {
    let lines = || window.around(LINES.0, LINES.1).lines().map(|line| stripped(line).rest.trim());
    match message.dialect.writer {
        // Each kill has a line of its own, right at the message or behind it.
        Writer::KILLER => {
            let behind = window.around(0, LINES.1).lines().find_map(|line| killed(stripped(line).rest.trim()));
            message.killed = behind.or_else(|| lines().filter_map(killed).next_back());
            message.beside.extend(torchrun(lines()));
        }
        Writer::TENSORFLOW => message.beside.extend(operation(lines())),
        Writer::SLURM => message.beside.extend(slurm(lines())),
        Writer::RAY => message.beside.extend(ray(lines())),
        _ => {}
    }
}

/// `Killed process 4242 (python3) total-vm:…`
fn killed(line: &str) -> Option<String> {
    let [pid, name] = captured!(r"Killed process (\d+)\s*[(,]\s*\(?([^),]*)[),]", line)?;
    Some(format!("{} ({})", pid.parse::<u32>().ok()?, clamped(name.trim(), NAME)))
}

/// torchrun's report of the worker that ended first: `rank      : 3 (local_rank: 3)`, `exitcode  : -9 (pid: 4242)`.
fn torchrun<'a>(lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut rank = None;
    for line in lines.skip_while(|line| !line.starts_with("Root Cause")) {
        if let Some([number]) = captured!(r"^rank\s*: (\d+) \(local_rank", line) {
            rank = Some(number);
        }
        if let (Some(rank), Some([pid])) = (rank, captured!(r"^exitcode\s*: -9 \(pid: (\d+)\)", line)) {
            return Some(format!("torchrun names rank {rank}, process {pid}, as the first that ended; it stopped the others."));
        }
    }
    None
}

/// The operation that TensorFlow 2 names: `[[{{node model/conv2d_3/Conv2D}}]]`.
fn operation<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let name = lines.find_map(|line| captured!(r"\[\[\{\{node ([^}]+)\}\}", line))?;
    let [name] = name;
    Some(format!("TensorFlow names the operation {}.", clamped(name, 2 * NAME)))
}

/// `StepId=647.7` and `srun: error: n012: task 3: Out Of Memory`
fn slurm<'a>(lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let (mut step, mut place) = (None, None);
    for line in lines {
        if line.contains("slurmstepd") {
            step = step.or(captured!(r"(?:StepId=| step |Step )(\d[A-Za-z0-9.]*)", line));
        }
        place = place.or(captured!(r"srun: error: ([^:]*): ([^:]*): Out Of Memory", line));
    }
    let step = step.map(|[id]: [&str; 1]| format!("step {}", id.trim_end_matches('.')));
    let place = place.map(|[node, tasks]: [&str; 2]| format!("{tasks} on node {node}"));
    listing("Slurm names ", step.into_iter().chain(place))
}

/// Ray's table of the largest processes: `PID  MEM(GB)  COMMAND`.
fn ray<'a>(lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let row = |line: &'a str| {
        let [pid, memory, name] = captured!(r"^(\d+)\s+(\S*\.\S*)\s*(.*)$", line)?;
        let bytes = Figure::at_start(memory, Some(30))?.0.bytes;
        Some(Listed { gpu: 0, pid: pid.parse().ok()?, name: name.to_owned(), bytes })
    };
    let below = lines.skip_while(|line| !(line.contains("PID") && line.contains("MEM(GB)"))).skip(1);
    listing("Ray lists who held the machine's memory: ", below.map_while(row).take(NAMED).map(|p| p.told()))
}

/// A sentence that ends with a list; `None` where nothing is listed.
fn listing(start: &str, told: impl Iterator<Item = String>) -> Option<String> {
    let list = told.collect::<Vec<_>>().join(", ");
    (!list.is_empty()).then(|| format!("{start}{list}."))
}

/// The profile of the slice with the capacity of the message's GPU, such as `1g.10gb`; empty if the text contains only its size.
pub(super) fn slice(around: &str, capacity: Figure) -> Option<String> {
    let profile = around.match_indices("MIG").chain(around.match_indices("mig-")).find_map(|(at, _)| {
        let rest = around.get(at + 3..)?.trim_start_matches([' ', '-', '_', ':', '/']);
        let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+')).count();
        let name = rest.get(..length)?;
        let (compute, memory) = name.rsplit_once("g.")?;
        let gib: f64 = memory.split('+').next()?.strip_suffix("gb")?.parse().ok()?;
        // A "10gb" slice has 9.5 GiB, an "18gb" slice 16 GiB.
        let share = capacity.bytes as f64 / (gib * GIBIBYTE as f64);
        (compute.starts_with(|c: char| c.is_ascii_digit()) && (0.85..1.05).contains(&share)).then(|| name.to_owned())
    });
    profile.or_else(|| {
        let table = around.split_once("MIG devices:")?.1;
        table.lines().any(|row| total(row).is_some_and(|mib| is_near(mib, capacity))).then(String::new)
    })
}

/// The second size in `|  1 3   0   0  |  14366MiB / 19968MiB | 28   0 |`.
fn total(row: &str) -> Option<u64> {
    let (_, size) = row.split_once("MiB /").filter(|(used, _)| used.contains('|'))?;
    size.trim_start().split_once("MiB")?.0.parse().ok()
}

fn is_near(mib: u64, capacity: Figure) -> bool {
    mib.saturating_mul(MEBIBYTE).abs_diff(capacity.bytes) <= capacity.bytes / 50
}
