//! Searches the cheapest way to make a size fit.
//!
//! Cost is compared by kind, in the order of [`Cost`]: an allocator setting, code that affects neither results nor time, more
//! time, different rounding, different training. All changes of one kind are tried before any of the next: one change, then two,
//! then three, with the recorded settings and with expandable segments. Gradient accumulation is the last of the changes that
//! cost time. It gives the same gradients, except for layers such as BatchNorm, which see only a part at once.

use rayon::prelude::*;

use super::changes::{Changed, predict};
use super::names::is_batch;
use super::{Peaks, Plan, Predicted, Setting, Size};
use crate::anatomy::{Phase, Role};
use crate::changes::{Change, Code, Cost, Trust, edit, titled};
use crate::inference::whatif::SUGGESTED;
use crate::units::MEBIBYTE;

/// The price of gradient accumulation, among changes that cost time.
const PRICE_OF_PASSES: (Cost, u32) = (Cost::Time, 32);
/// More passes than this are not suggested.
const MOST_PASSES: u64 = 64;
const EXPANDABLE: &str = "expandable_segments:True";

/// Changes and a setting under which a size fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// The changes to the program; empty if a setting is sufficient.
    pub changes: Vec<Change>,
    /// The allocator's settings.
    pub setting: Setting,
}

/// A size divided into several passes whose gradients add up.
#[derive(Clone, Debug, PartialEq)]
pub struct Passes {
    /// Number of passes.
    pub passes: u64,
    /// The size of each pass.
    pub part: u64,
    /// The size of all passes together.
    pub whole: u64,
    /// The cost in words.
    pub cost: String,
    /// The prediction for one pass, without a limit.
    pub of_part: Predicted,
    /// Bytes of gradients kept for the other passes, in addition to the peak of one pass.
    pub kept: u64,
    /// True for training, where gradients add up.
    pub trains: bool,
}

impl Passes {
    /// The price, comparable with that of changes.
    pub fn price() -> (Cost, u32) {
        PRICE_OF_PASSES
    }

    /// Peak of reserved bytes.
    pub fn peak(&self) -> u64 {
        (self.of_part.peak_reserved_bytes + self.kept).div_ceil(MEBIBYTE) * MEBIBYTE
    }

    /// `gradient accumulation, 2 × 32`, or `the batch in parts, 2 × 32`.
    pub fn title(&self) -> String {
        let what = if self.trains { "gradient accumulation" } else { "the batch in parts" };
        if self.passes * self.part > self.whole {
            return format!("{what}, {} passes of at most {}", self.passes, self.part);
        }
        format!("{what}, {} \u{d7} {}", self.passes, self.part)
    }

    /// The code to paste.
    pub fn code(&self) -> Code {
        match self.trains {
            true => Code::of_passes(self.passes, self.part, self.whole),
            false => Code::of_parts(self.part),
        }
    }
}

impl Plan {
    /// Every change alone: those that fit, those that fail, those that do nothing here; each group cheapest first. If the size
    /// does not fit, the cheapest way to make it fit comes first, and gradient accumulation is included if it makes it fit.
    pub fn all_changes(&self, size: &Size, setting: &Setting, name: Option<&str>) -> Vec<Changed> {
        // Computed once in advance, because every change is compared with it.
        if let Some(name) = name.filter(|_| setting.limit.is_some()) {
            let _ = self.largest(name, size, setting);
        }
        let mut rows: Vec<((u8, Cost, u32), Changed)> = Change::all()
            .par_iter()
            .filter_map(|c| Some((c.price(), self.change(std::slice::from_ref(c), size, setting, name)?)))
            .map(|((kind, price), row)| ((row.rank(), kind, price), row))
            .collect();
        let fails = setting.limit.is_some() && self.under(size, setting).oom;
        let passes = name.filter(|_| fails).and_then(|name| self.passes(size, name, setting));
        if let Some(passes) = &passes {
            let (kind, price) = PRICE_OF_PASSES;
            let row = self.in_passes(passes, size, setting);
            rows.push(((row.rank(), kind, price), row));
        }
        rows.sort_by_key(|(key, _)| *key);
        let mut rows: Vec<Changed> = rows.into_iter().map(|(_, row)| row).collect();
        let way = if fails { self.cheapest(size, setting) } else { None };
        let is_dearer = |way: &Way| Change::price_of(&way.changes) > PRICE_OF_PASSES;
        let best = match (way, passes) {
            (Some(way), passes) if passes.is_none() || !is_dearer(&way) => self.row_of(&way, size, setting, name),
            (_, Some(passes)) => Some(self.in_passes(&passes, size, setting)),
            _ => None,
        };
        if let Some(best) = best {
            rows.retain(|row| row.title != best.title);
            rows.insert(0, best);
        }
        rows
    }

    /// The cheapest way to make a size fit under a limit: settings first, then up to three changes.
    pub fn cheapest(&self, size: &Size, own: &Setting) -> Option<Way> {
        let parsed = |conf: &str| Setting::parse(conf, own.limit).ok().filter(|s| s.conf != own.conf);
        let settings: Vec<Setting> = SUGGESTED.iter().filter_map(|(conf, _)| parsed(conf)).collect();
        let fits = |setting: &Setting| {
            let p = self.at(size, setting);
            !p.oom && !p.oom_varies
        };
        if let Some(setting) = settings.par_iter().find_first(|s| fits(s)) {
            return Some(Way { changes: Vec::new(), setting: setting.clone() });
        }
        let grown = parsed(EXPANDABLE);
        let settings: Vec<&Setting> = std::iter::once(own).chain(&grown).collect();
        let model = self.model()?;
        let does = |c: &Change| edit(model.program.requests(), std::slice::from_ref(c)).reason.is_none();
        let all: Vec<Change> = Change::all().into_iter().filter(does).collect();
        let mut tries: Vec<((Cost, u32), usize, Vec<Change>)> = Vec::new();
        for set in sets(&all) {
            for other in 0..settings.len() {
                let (kind, price) = Change::price_of(&set);
                tries.push(((kind, price + other as u32), other, set.clone()));
            }
        }
        tries.sort_by_key(|(price, other, set)| (*price, set.len(), *other));
        let sure: Vec<Setting> = settings.iter().map(|s| self.with_margin(size, s)).collect();
        let found = tries.par_iter().find_first(|(_, other, set)| {
            let answer = predict(model, &edit(model.program.requests(), set), size, &sure[*other]);
            !answer.oom && !answer.oom_varies
        });
        found.map(|(_, other, set)| Way { changes: set.clone(), setting: settings[*other].clone() })
    }

    /// Divides a size into the fewest passes that fit, with the gradients of earlier passes kept. Only a batch can be divided.
    pub fn passes(&self, size: &Size, name: &str, setting: &Setting) -> Option<Passes> {
        let (wanted, limit) = (size.get(name).filter(|_| is_batch(name))?, setting.limit?);
        let fits = self.largest(name, size, setting).span[0];
        let tried = (2..=MOST_PASSES.min(wanted)).filter(|n| wanted.div_ceil(*n) <= fits);
        // Equal parts keep the batch size exactly.
        let tried = tried.clone().filter(|n| wanted.is_multiple_of(*n)).chain(tried);
        tried.filter_map(|passes| self.divided(size, name, passes, setting)).find(|p| p.of_part.span[1] + p.kept <= limit)
    }

    /// Divides a size into this many passes, whether or not it fits; `None` if the size lacks the quantity.
    fn divided(&self, size: &Size, name: &str, passes: u64, setting: &Setting) -> Option<Passes> {
        let whole = size.get(name)?;
        let part = whole.div_ceil(passes.max(1));
        let of_part = self.at(&size.with(name, part), &Setting { limit: None, ..setting.clone() });
        let role = |role: &str| of_part.by_role.get(role).copied().unwrap_or(0);
        let trains = self.programs[self.largest].rows.iter().any(|row| row.phase == Phase::Backward);
        let kept = if trains { role("weights").saturating_sub(role("gradients")) } else { 0 };
        Some(Passes { passes, part, whole, of_part, kept, trains, cost: self.cost_of_passes(passes, part) })
    }

    /// The row for a batch in this many passes, whether or not it fits; `None` if no batch is known or it has fewer samples.
    pub fn accumulated(&self, passes: u64, size: &Size, setting: &Setting) -> Option<Changed> {
        let name = self.names.iter().find(|name| is_batch(name))?;
        size.get(name).filter(|batch| passes <= *batch)?;
        Some(self.in_passes(&self.divided(size, name, passes, setting)?, size, setting))
    }

    /// The cost of several passes, in words. Layers that need the whole batch are recognised by their names in stacks.
    fn cost_of_passes(&self, passes: u64, part: u64) -> String {
        let stacks = &self.programs[self.largest].recording.stacks;
        let has_norm = (0..stacks.text_count() as u32).any(|id| {
            let text = stacks.text(crate::model::StrId(id)).to_ascii_lowercase();
            text.contains("batchnorm") || text.contains("batch_norm")
        });
        let fewer = if has_norm { format!("; a BatchNorm sees {part} samples at once") } else { String::new() };
        format!("{passes} passes in place of one{fewer}")
    }

    fn row_of(&self, way: &Way, size: &Size, own: &Setting, name: Option<&str>) -> Option<Changed> {
        let conf = way.setting.text.as_str();
        let mut row = match way.changes.as_slice() {
            [] => {
                let p = self.at(size, &way.setting);
                let largest_span = name.map(|name| self.largest(name, size, &way.setting).span);
                let largest = largest_span.map(|l| l[0]);
                let cost = "nothing in the program".to_owned();
                let row = self.unchanged(&p, size, own);
                let peaks = Peaks { retries: p.retries, ..row.peaks };
                Changed { largest, largest_span, peaks, cost, ..row }
            }
            changes => self.change(changes, size, &way.setting, name)?,
        };
        if conf != own.text {
            (row.title, row.code) = (titled(&row.title, conf, &own.text), row.code.with_conf(conf));
        }
        row.conf = conf.to_owned();
        Some(row)
    }

    fn in_passes(&self, passes: &Passes, size: &Size, own: &Setting) -> Changed {
        let peak = passes.peak();
        let mut row = self.unchanged(&passes.of_part, size, own);
        *row.peaks.by_role.entry(Role::Gradients.name()).or_default() += passes.kept;
        let peaks = Peaks {
            peak_reserved_bytes: peak,
            span: [passes.of_part.peak_reserved_bytes, peak.max(passes.of_part.span[1] + passes.kept)],
            oom: own.limit.is_some_and(|limit| peak > limit),
            peak_allocated_bytes: row.peak_allocated_bytes + passes.kept,
            ..row.peaks
        };
        Changed {
            change: format!("accumulate:{}", passes.passes),
            title: passes.title(),
            peaks,
            cost: passes.cost.clone(),
            trust: Trust::Close,
            code: passes.code(),
            saves_bytes: row.saves_bytes - passes.kept as i64,
            ..row
        }
    }

    /// A row with the figures of a run, without changes.
    fn unchanged(&self, run: &Predicted, size: &Size, own: &Setting) -> Changed {
        let now = self.modelled(size, &Setting { limit: None, ..own.clone() });
        Changed {
            change: String::new(),
            title: String::new(),
            conf: own.text.clone(),
            reason: None,
            helps: run.peak_reserved_bytes <= now.peak_reserved_bytes,
            peaks: Peaks { oom: false, oom_varies: false, is_open: self.has_no_step(), retries: 0, ..run.peaks.clone() },
            saves_bytes: now.peak_allocated_bytes as i64 - run.peak_allocated_bytes as i64,
            largest: None,
            largest_span: None,
            recomputed_requests: 0,
            recomputed_bytes: 0,
            moved_bytes: 0,
            cost: String::new(),
            trust: Trust::Exact,
            code: Code::default(),
        }
    }
}

/// All sets of one, two and three of these changes that do not exclude each other.
fn sets(all: &[Change]) -> Vec<Vec<Change>> {
    let mut sets: Vec<Vec<Change>> = all.iter().map(|c| vec![c.clone()]).collect();
    let mut last = sets.clone();
    for _ in 0..2 {
        let longer = |set: &Vec<Change>| {
            let from = all.iter().position(|c| set.last() == Some(c)).map_or(0, |i| i + 1);
            let more = all[from..].iter().filter(|c| !set.iter().any(|s| s.excludes(c)));
            more.map(|c| set.iter().cloned().chain([c.clone()]).collect()).collect::<Vec<Vec<Change>>>()
        };
        last = last.iter().flat_map(longer).collect();
        sets.extend(last.iter().cloned());
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_three_changes_at_most_and_none_that_exclude_each_other() {
        let sets = sets(&Change::all());
        let has = |set: &[Change]| sets.iter().filter(|s| s.as_slice() == set).count();
        assert_eq!(has(&[Change::Fused, Change::CacheOff, Change::Chunks(8)]), 1);
        assert_eq!(has(&[Change::Fused, Change::NoForeach]), 0, "one optimizer");
        assert!(sets.iter().all(|s| (1..=3).contains(&s.len())));
    }

    #[test]
    fn kinds_of_cost_come_in_their_order() {
        let order: Vec<(Cost, u32)> = Change::all().iter().map(Change::price).collect();
        assert!(order.is_sorted(), "{order:?}");
        // Two changes that cost time are cheaper than one that changes rounding.
        assert!(Change::price_of(&[Change::Checkpoint(None), Change::Offload]) < Change::Bf16.price());
        assert!(Passes::price() < Change::Offload.price(), "moving every activation each step costs more than passes");
        assert!(Passes::price() > Change::Checkpoint(None).price());
        assert!(Change::Chunks(8).price() < Change::Checkpoint(None).price(), "the last layer runs twice, not every one");
    }
}
