//! `vramscope report FILE -o report.html`: a report on a recording, as one page to send, or as Markdown for an issue.
//!
//! Figures and sentences come from `summary`, `findings`, `oom` and `plan`; [`Report`] only combines them. All text goes through
//! [`Hidden`], so that none of it can be markup and, with `--redact`, none of it identifies the machine.

mod about;
mod hidden;
mod html;
mod markdown;
mod page;
mod pictures;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use self::about::About;
pub use self::hidden::Hidden;
use self::pictures::{Map, Timeline};
use super::args::{PlanArgs, ReportArgs, ReportFormat};
use super::findings::Found;
use super::oom::{OomEntry, OomReport, PeakEntry};
use super::plan::PlanReport;
use super::summary::doing::{Held, Peak};
use super::summary::{DeviceSummary, Summary};
use super::{Failure, choose_device, explain, open_any, print};
use vramscope_core::anatomy::Roles;
use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::doctor::lacks;
use vramscope_core::diagnose::findings::Finding;
use vramscope_core::formats::export::WriteError;
use vramscope_core::formats::export::new_file::{NewFile, refusal};
use vramscope_core::inference::Horizon;
use vramscope_core::model::{DeviceKind, DeviceRecording, Format, Progress, Recording};
use vramscope_core::plan::{Input, Plan, Size};
use vramscope_core::tables::{DeviceTables, StackNames};
use vramscope_core::units::{Bytes, count, counted};

/// The largest page, in bytes.
const MOST_HTML: usize = 2_000_000;
/// The longest Markdown, in characters. GitHub refuses issues of 65,536 characters.
pub const MOST_MARKDOWN: usize = 60_000;
/// Most devices with their own section; others get one row each.
const PARTS: usize = 8;
const BLOCKERS: usize = 6;
/// Most columns of all timelines together, and most cells of all maps together.
const COLUMNS: usize = 4_000;
const CELLS: usize = 14_000;
/// By default, changes to the program are simulated for recordings of at most this many events, which takes a second or two.
const PLANNED: usize = 50_000;

/// Options of a report.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Leaves out what identifies the machine and its users.
    pub redact: bool,
    /// The size of the recorded run.
    pub at: Option<Size>,
    /// The most bytes that may be reserved.
    pub cap: Option<u64>,
    /// The user's own rules for roles.
    pub rules: Rules,
}

/// Runs the subcommand. Fails when the file cannot be read, when it lacks the device, or when the report cannot be written.
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let target = args.target().map_err(Failure::Usage)?;
    let is_stdout = target.as_os_str() == "-";
    if !is_stdout && let Some(error) = refusal(target, &[&args.file], args.force) {
        return Err(error.into());
    }
    let format = args.format().map_err(Failure::Usage)?;
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    if args.cap.is_some() && args.at.is_none() && vramscope_core::plan::names::value_of(&name, "batch").is_none() {
        let why =
            "--cap has no effect here: which size fits is told where the size of this run is known; add --at, as in --at batch=8";
        return Err(Failure::Usage(why.to_owned()));
    }
    let options = Options { redact: args.redact, at: args.at.clone(), cap: args.cap, rules: args.rules.read()? };
    let text = of_file(&args.file, args.device, format, &options)?;
    if is_stdout {
        return Ok(print(out, &text)?);
    }
    let size = save(&text, target, &[&args.file], args.force)?;
    Ok(print(out, &format!("{}: the report, {}", target.display(), Bytes(size)))?)
}

/// The report on a file, which is a recording or a log with an out-of-memory error.
fn of_file(path: &Path, device: Option<i32>, format: ReportFormat, options: &Options) -> Result<String, String> {
    match open_any(path) {
        Ok(mut recording) => {
            if device.is_some() {
                let chosen = choose_device(&recording, device)?;
                recording.devices = vec![recording.devices.swap_remove(chosen)];
            }
            let about = About::beside(path);
            Ok(text(&Report::of(path, &Arc::new(recording), about, options)?, format, options.redact))
        }
        Err(sentence) => {
            let Some(explained) = explain::of_file(path) else { return Err(sentence) };
            let hidden = Hidden::of_file(options.redact, path);
            Ok(match format {
                ReportFormat::Html => html::of_log(&hidden, path, &explained),
                ReportFormat::Md => markdown::of_log(&hidden, path, &explained),
            })
        }
    }
}

/// Writes the report on an open recording, for the window: HTML, or Markdown when the name ends in `.md`. Replaces an older file.
/// Fails when the computation was cancelled or the file cannot be written.
pub fn write(recording: &Arc<Recording>, out: &Path, options: &Options) -> Result<u64, String> {
    let is_markdown = out.extension().is_some_and(|e| e.eq_ignore_ascii_case("md"));
    let path = recording.source.path.clone().unwrap_or_else(|| recording.source.name.clone().into());
    let report = Report::of(&path, recording, About::beside(&path), options)?;
    let format = if is_markdown { ReportFormat::Md } else { ReportFormat::Html };
    save(&text(&report, format, options.redact), out, &[&path], true).map_err(|e| e.to_string())
}

fn text(report: &Report, format: ReportFormat, redact: bool) -> String {
    let hidden = Hidden::of(redact, report);
    match format {
        ReportFormat::Md => markdown::of(&hidden, report),
        // Halves columns, cells and lengths of texts until the page is small enough. The number of texts is already limited.
        ReportFormat::Html => (0..7)
            .map(|halved| html::of(&hidden.shorter(halved), report, COLUMNS >> halved, CELLS >> halved))
            .find(|page| page.len() < MOST_HTML)
            .unwrap_or_else(|| html::of(&hidden.shorter(7), report, 0, 0)),
    }
}

/// Writes a text as a new file. Returns its size.
fn save(text: &str, out: &Path, sources: &[&Path], force: bool) -> Result<u64, WriteError> {
    let mut file = NewFile::create(out, sources, force)?;
    file.write_all(text.as_bytes()).map_err(|e| WriteError::io(out, e))?;
    file.finish()?;
    Ok(text.len() as u64)
}

/// Everything in a report, collected from the other commands.
pub struct Report {
    recording: Arc<Recording>,
    summary: Summary,
    oom: OomReport,
    /// `None` when the rules have nothing to examine.
    found: Option<Found>,
    /// One section per device in the order of the recording, or only the busiest devices when there are very many.
    parts: Vec<Part>,
    /// The page that was written beside the recording when the failure was recorded.
    about: Option<About>,
}

/// A device's section: the data that only this report needs.
struct Part {
    /// Index of the device in the recording.
    index: usize,
    tables: DeviceTables,
    roles: Roles,
    /// What was held when its last request failed.
    held: Option<Peak>,
    plan: Result<Planned, String>,
}

/// A plan from this single recording.
struct Planned {
    report: PlanReport,
    /// The size of the run; `None` when it is unknown.
    at: Option<Size>,
    /// The size was guessed from the file's name.
    is_guessed: bool,
    /// The recording ends at a failed request.
    horizon: Option<Horizon>,
}

impl Report {
    fn of(path: &Path, recording: &Arc<Recording>, about: Option<About>, options: &Options) -> Result<Self, String> {
        let progress = Progress::new();
        let build = |device: &DeviceRecording| DeviceTables::build(device, &progress).map_err(|e| e.to_string());
        let tables: Vec<DeviceTables> = recording.devices.iter().map(build).collect::<Result<_, _>>()?;
        let summary = super::summary::summarise_with(path, recording, &tables)?;
        let names = StackNames::of(&recording.stacks);
        let (mut oom, mut found) = (OomReport::default(), None);
        if recording.has_blocks() {
            oom = super::oom::report_with(recording, &tables, &options.rules)?;
        }
        if super::findings::has_what_rules_need(recording) {
            let does = format!("vramscope oom --whatif {} does.", super::quoted(&path.display().to_string()));
            let mut rules = Found::new(does);
            for (device, tables) in recording.devices.iter().zip(&tables) {
                rules.add(recording, device, tables, &names, &options.rules)?;
            }
            found = Some(rules);
        }
        let holds = |i: usize| {
            let d = &recording.devices[i];
            d.has_blocks() || !d.samples.is_empty() || !d.bands.is_empty()
        };
        let mut shown: Vec<usize> = (0..recording.devices.len()).filter(|&i| holds(i)).collect();
        shown.sort_by_key(|&i| {
            let d = &recording.devices[i];
            (!d.events.has_oom(), std::cmp::Reverse(d.events.len()), i)
        });
        shown.truncate(PARTS);
        shown.sort_unstable();
        let mut parts = Vec::with_capacity(shown.len());
        for (index, tables) in tables.into_iter().enumerate().filter(|(i, _)| shown.contains(i)) {
            let device = &recording.devices[index];
            let roles = Roles::build(recording, device, &tables, &options.rules, &progress).map_err(|e| e.to_string())?;
            let cap = options.cap.or(device.limit).or_else(|| oom.limit_of(device.id.index));
            let plan = planned(recording, index, &tables, options, cap);
            // When a request failed, the tables show what was held then.
            let failed = summary.devices[index].ooms.last();
            let held = failed.map(|failed| Peak::at(recording, device, &tables, &roles, failed.event, FAILED));
            parts.push(Part { index, tables, roles, held, plan });
        }
        Ok(Report { recording: Arc::clone(recording), summary, oom, found, parts, about })
    }

    fn device(&self, part: &Part) -> &DeviceRecording {
        &self.recording.devices[part.index]
    }

    fn figures(&self, part: &Part) -> &DeviceSummary {
        &self.summary.devices[part.index]
    }

    /// The last examined failure of a device.
    fn failure(&self, part: &Part) -> Option<&OomEntry> {
        let figures = self.figures(part);
        let is_its = |o: &&OomEntry| o.device == figures.index && figures.ooms.iter().any(|oom| oom.event == o.event);
        self.oom.ooms.iter().rfind(is_its)
    }

    /// The instant that the tables of roles and lines show.
    fn instant(&self, part: &Part) -> &'static str {
        match self.figures(part) {
            d if !d.ooms.is_empty() => "When the request failed",
            d if d.events > 0 => "At the peak",
            _ => "When it was written",
        }
    }

    /// The failure, if there is one: `Out of memory at event 176: the device is full`.
    fn verdict(&self, part: &Part) -> Option<String> {
        let last = self.figures(part).ooms.last()?;
        let found = self.failure(part);
        let event = found.map_or(last.event, |o| o.event);
        let title = found.and_then(|o| self.finding_of(o, part)).and_then(|f| f.title.split_once(": "));
        let why = title.map(|(_, why)| format!(": {why}")).unwrap_or_default();
        Some(format!("Out of memory at event {}{why}", count(u64::from(event))))
    }

    fn closest(&self, part: &Part) -> Option<&PeakEntry> {
        let label = self.device(part).id.to_string();
        self.oom.peaks.iter().find(|p| p.label == label)
    }

    /// What the tables of roles and lines show.
    fn peak<'a>(&'a self, part: &'a Part) -> Option<&'a Peak> {
        self.figures(part).doing.as_ref().map(|d| part.held.as_ref().unwrap_or(&d.peak))
    }

    /// The main sentence, and the lines beside it.
    fn lead(&self, part: &Part) -> (String, Vec<String>) {
        let figures = self.figures(part);
        let more = figures.doing.as_ref().map(|d| format!("{}.", d.peak.sentence));
        if let Some(oom) = self.failure(part) {
            return (oom.sentence.clone(), more.into_iter().collect());
        }
        let peak = super::summary::text::peak(figures);
        let label = format!("{}: ", figures.label);
        let peak = sentence(peak.strip_prefix(&label).unwrap_or(&peak));
        if let Some(oom) = figures.ooms.last() {
            let failed = format!(
                "A request for {} failed at event {}. The file does not record what was free, so the reason is unknown.",
                Bytes(oom.requested_bytes),
                count(u64::from(oom.event))
            );
            return (failed, vec![peak]);
        }
        (peak, self.closest(part).map(|p| p.sentence.clone()).into_iter().collect())
    }

    /// What the report says about a recording without devices.
    fn without_parts(&self) -> Vec<String> {
        let counted = self.summary.devices.iter().zip(&self.summary.counters);
        let told: Vec<String> = counted.map(|(d, c)| format!("{}: {}", d.label, c.sentence)).collect();
        if told.is_empty() { vec!["No device of this recording has events, segments or samples.".to_owned()] } else { told }
    }

    /// Devices without their own section.
    fn others(&self) -> impl Iterator<Item = &DeviceSummary> {
        let is_shown = |index: usize| self.parts.iter().any(|p| p.index == index);
        let devices = self.summary.devices.iter().enumerate();
        devices.filter(move |(index, _)| !self.parts.is_empty() && !is_shown(*index)).map(|(_, d)| d)
    }

    fn timeline(&self, part: &Part, columns: usize) -> Result<Timeline, String> {
        let device = self.device(part);
        let timeline = Timeline::of(&self.recording, device, &part.tables, &part.roles, columns);
        timeline.ok_or_else(|| {
            match self.recording.has_blocks() {
                true => "Memory over time is not in this recording: it has the state of one instant and no history.",
                false => "Memory over time is not in this recording.",
            }
            .to_owned()
        })
    }

    fn map(&self, part: &Part, cells: usize) -> Result<Map, String> {
        let device = self.device(part);
        let not_there = || {
            let why = device.can_show.segments.why_not();
            let why = if why.is_empty() { String::new() } else { format!(" {}", sentence(why)) };
            format!("The segments are not in this recording, so where each block lies is not known.{why}")
        };
        let event = self.failure(part).map_or(part.tables.curves.peak_event(), |o| o.event);
        let state = part.tables.states.at(device, &part.tables.lifetimes, event);
        let names = StackNames::of(&self.recording.stacks);
        Map::of(&self.recording, device, &part.tables, &names, &part.roles, &state, cells).ok_or_else(not_there)
    }

    /// What the recording lacks, as `doctor` lists it: a sentence and, if there is one, the line of code that records it.
    fn missing(&self) -> Vec<(String, Option<String>)> {
        // Nobody cancels it.
        let lacks = lacks(&self.recording, &Progress::new()).unwrap_or_default();
        lacks.into_iter().map(|lack| (lack.sentence, lack.line.map(str::to_owned))).collect()
    }

    /// Rows of the table at the end: label and value.
    fn environment(&self, hidden: &Hidden) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut add = |label: &str, value: String| rows.push((label.to_owned(), value));
        let load = &self.summary.load;
        add("format", format!("{}, {}, {} events", self.summary.format, Bytes(load.bytes), count(load.events)));
        for part in &self.parts {
            let (device, d) = (self.device(part), self.figures(part));
            let whose = if self.parts.len() == 1 { String::new() } else { format!("{}: ", d.label) };
            let of = |label: &str| format!("{whose}{label}");
            add(&of("card"), d.name.clone().unwrap_or_else(|| "not in this recording".to_owned()));
            if let Some(bytes) = d.capacity_bytes {
                add(&of("device memory"), Bytes(bytes).to_string());
            }
            if let Some(bytes) = d.limit_bytes {
                add(&of("limit of the process"), Bytes(bytes).limit());
            }
            if device.has_blocks() {
                let conf = match (&d.alloc_conf, device.settings.recorded) {
                    (Some(conf), _) => conf.clone(),
                    (None, true) => "(defaults)".to_owned(),
                    (None, false) => "not in this recording".to_owned(),
                };
                add(&of("allocator settings"), conf);
            }
            if let Some([first, last]) = d.time_us {
                let span = vramscope_core::units::Micros(last.saturating_sub(first));
                let clock = vramscope_core::diagnose::source_limits::clock_span(d.counts_from, first, last);
                add(&of("recorded"), format!("{clock}, {span}"));
            }
            if let Some(doing) = d.doing.as_ref().filter(|doing| doing.steps.count > 0) {
                add(&of("steps"), format!("{}, {}", count(doing.steps.count as u64), doing.steps.how));
            }
        }
        for (label, value) in self.about.iter().flat_map(|about| about.rows(hidden.is_on())) {
            add(&label, value);
        }
        add("report by", format!("vramscope {}", env!("CARGO_PKG_VERSION")));
        rows
    }

    fn finding_of(&self, failure: &OomEntry, part: &Part) -> Option<&Finding> {
        self.findings(part).into_iter().find(|f| f.rule == "out_of_memory" && f.place.event == Some(failure.event))
    }

    /// What the table of changes says about a finding's change, when that differs from the finding's figure.
    fn as_planned(&self, finding: &Finding, part: &Part) -> Option<String> {
        let (change, saving) = (finding.change()?.name(), finding.saving?);
        let plan = &part.plan.as_ref().ok()?.report;
        let row = plan.changes.iter().find(|c| c.change == change && c.reason.is_none())?;
        let (here, there) = (saving.bytes(), u64::try_from(row.saves_bytes).unwrap_or(0));
        // A difference of less than 1 % is ignored.
        let is_alike = here.abs_diff(there) <= here.max(there) / 100;
        let saves = if there == 0 { "nothing".to_owned() } else { Bytes(there).to_string() };
        (!is_alike).then(|| {
            let steps = counted(plan.steps as u64, "step", "steps");
            format!(
                "This is the recorded peak with the change. Replayed over {steps}, as in the table of changes, it saves {saves}."
            )
        })
    }

    /// The findings of a device, most serious first.
    fn findings(&self, part: &Part) -> Vec<&Finding> {
        let id = self.device(part).id;
        self.found.iter().flat_map(|f| &f.findings).filter(|(of, _)| *of == id).map(|(_, f)| f).collect()
    }
}

/// The instant of a report on a failure.
const FAILED: &str = "held when the request failed";

fn short(name: &str) -> std::borrow::Cow<'_, str> {
    const MOST: usize = 160;
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &name[..at]).into(),
        None => name.into(),
    }
}

/// A note on the bytes of all rows that are not shown, when all rows together hold `all` bytes; `None` when there are none.
/// Without it, two tables of the same memory would seem to differ.
fn not_shown(rows: &[Held], shown: usize, all: u64) -> Option<String> {
    let rest = all.saturating_sub(rows.iter().take(shown).map(|row| row.bytes).sum());
    let shown = rows.len().min(shown);
    (rest > 0).then(|| format!("The {shown} largest are shown; all others together hold {}.", Bytes(rest)))
}

fn sentence(clause: &str) -> String {
    let text = vramscope_core::units::capital(clause.trim());
    if text.ends_with(['.', ':', '?']) { text } else { format!("{text}.") }
}

/// A plan from this single recording, or the reason why there is none.
fn planned(
    recording: &Arc<Recording>,
    device: usize,
    tables: &DeviceTables,
    options: &Options,
    cap: Option<u64>,
) -> Result<Planned, String> {
    let of = &recording.devices[device];
    if !of.has_blocks() {
        return Err("A plan needs each allocation, and this recording has none.".to_owned());
    }
    let is_other = matches!(recording.source.format, Format::RmmLog | Format::JaxMemoryProfile);
    if is_other || matches!(of.id.kind, DeviceKind::Host | DeviceKind::Cpu) {
        return Err("A plan is of what PyTorch requests from a GPU.".to_owned());
    }
    if let Some(why) = super::whatif::without_requests(of) {
        return Err(sentence(&why));
    }
    if of.events.len() > PLANNED && options.at.is_none() {
        return Err(format!(
            "Changes to the program were not tried on {} events: that takes longer than one would wait unasked. With --at, as in --at batch=8, they are.",
            count(of.events.len() as u64)
        ));
    }
    let guess = vramscope_core::plan::names::value_of(&recording.source.name, "batch").map(|n| Size::of("batch", n));
    let is_guessed = options.at.is_none() && guess.is_some();
    let at = options.at.clone().or(guess);
    // Without a size, no other sizes are planned, so any name will do.
    let size = at.clone().unwrap_or_else(|| Size::of("batch", 1));
    let input = Input { recording: Arc::clone(recording), device, tables, at: size.clone() };
    let plan = Plan::of(vec![input], &Progress::new()).map_err(|e| sentence(&e.to_string()))?;
    let cap = cap.filter(|_| at.is_some());
    let (conf, change) = (vec![plan.own_setting(cap).text], vec!["all".to_owned()]);
    let args = PlanArgs { want: vec![size], cap, conf, change, ..PlanArgs::default() };
    let report = super::plan::answer(&plan, &args, cap).map_err(|why| why.into_parts().1)?;
    Ok(Planned { report, at, is_guessed, horizon: plan.horizon() })
}

impl Planned {
    /// Which size fits, and how reliable that is.
    fn sentences(&self) -> Vec<String> {
        let Some(at) = &self.at else {
            return vec![
                "What each change does to the recorded run, simulated on its requests. Which size fits is not told: the report does not know \
                 what this was run at (vramscope report --at batch=8 says it)."
                    .to_owned(),
            ];
        };
        let guessed = if self.is_guessed { " (read from the file's name)" } else { "" };
        let mut said = Vec::new();
        if let (Some(name), Some(best), Some(cap)) = (&self.report.largest_of, self.report.largest.first(), self.report.cap_bytes)
        {
            said.push(best.sentence(name, &Bytes(cap).limit(), cap, self.horizon));
        }
        // Notes that the command `plan` prints with the same answer.
        said.extend(self.report.notes.iter().cloned());
        said.push(format!(
            "Run at {at}{guessed}. One recording tells only what is likely to grow; a second one at another size narrows a plan: vramscope plan."
        ));
        said
    }

    /// The changes that lower the peak, largest saving first.
    fn changes(&self) -> Vec<&vramscope_core::plan::Changed> {
        let mut helps: Vec<_> = self.report.changes.iter().filter(|c| c.reason.is_none() && c.saves_bytes > 0).collect();
        helps.sort_by_key(|c| std::cmp::Reverse(c.saves_bytes));
        helps
    }
}
