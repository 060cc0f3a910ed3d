//! The user's choices, and what is known so far. Each frame makes one [`Scene`], from which everything is drawn.

use std::collections::HashMap;
use std::sync::Arc;

use super::inputs::Inputs;
use super::layout::{extent, grid, order, step_for};
use super::left::largest_ask;
use super::room::{Room, room_words};
use super::runs::{Answer, Ask, Point, Runs};
use super::scene::{Figures, Kind, Outcome, Question, Row, Scene, outcome};
use super::table::Order;
use crate::app::jobs::Derived;
use crate::app::widgets::Sort;
use vramscope_core::inference::CapRange;
use vramscope_core::inference::whatif::SUGGESTED;
use vramscope_core::plan::Code;
use vramscope_core::plan::{Change, Changed, Cost, ENDS, Passes, Plan, Size, Trust, titled};

/// Most sizes that are simulated for a curve. Sizes between them are interpolated.
const MOST_POINTS: usize = 56;

#[derive(Default)]
pub struct PlanView {
    pub(super) inputs: Inputs,
    pub(super) runs: Runs,
    /// The plan that `runs` currently answers for.
    pub(super) asked: Option<Arc<Plan>>,
    /// The memory to fit in, once chosen.
    pub(super) room: Option<Room>,
    /// The memory limit that the recording itself shows.
    pub(super) own_room: Derived<(), (Room, Option<CapRange>)>,
    /// The recording's cap, when only a range is known.
    pub(super) estimate: Option<CapRange>,
    /// The chosen card when it is not one of the listed cards.
    pub(super) more_card: Option<&'static str>,
    pub(super) cap_text: String,
    pub(super) cap_error: Option<String>,
    /// Bytes on the card that other programs use.
    pub(super) held: u64,
    pub(super) held_text: String,
    /// The quantity on the axis.
    pub(super) axis: usize,
    /// Values of the other quantities.
    pub(super) others: HashMap<String, u64>,
    /// The size in view, the wanted size, and the step between sizes, once chosen.
    pub(super) chosen: Option<u64>,
    pub(super) wanted: Option<u64>,
    pub(super) step: Option<u64>,
    /// Text being typed into number fields, by field name.
    pub(super) typed: HashMap<String, String>,
    /// The plotted row; the best one until the user clicks another.
    pub(super) row: Option<Kind>,
    /// Sort order of the rows; best first until the user clicks a column title.
    pub(super) sort: Option<Sort<Order>>,
    /// What the status bar shows.
    pub(super) told: Vec<(String, String)>,
    /// PyTorch, HF Trainer, Lightning.
    pub(super) library: usize,
    /// 0: changes, 1: roles and code. Used when there is room for only one of them.
    pub(super) page: usize,
    /// The slider takes the focus, because it just appeared or a chart was clicked.
    pub(super) takes_keys: bool,
    /// The frame in which the slider was last drawn.
    pub(super) drawn_in: Option<u64>,
    /// Also shows changes that would not help.
    pub(super) shows_idle: bool,
    /// The role under the pointer.
    pub(super) role: Option<&'static str>,
    /// How many of [`SharedViewState::to_plan_with`](crate::app::state::shared::SharedViewState::to_plan_with) were added.
    pub(super) planned_with: usize,
}

impl PlanView {
    /// What is known so far, and the questions that are still open.
    pub(super) fn scene(&self, plan: &Arc<Plan>, room: Room, ooms: &[u32]) -> (Scene, Vec<Ask>) {
        let names = plan.names();
        // A quantity with the same value in all recordings cannot be planned at another value.
        let varies = |name: &&String| plan.held_at(name).is_none();
        let name = names.get(self.axis).filter(varies).or_else(|| names.iter().find(varies)).or(names.first());
        let name = name.cloned().unwrap_or_default();
        let largest_at = &plan.programs()[plan.largest_at()].at;
        let base = largest_at.iter().fold(largest_at.clone(), |size, (n, v)| {
            size.with(n, self.others.get(n).copied().filter(|_| n != name && plan.held_at(n).is_none()).unwrap_or(v))
        });
        let mut recorded: Vec<u64> = plan.programs().iter().filter_map(|p| p.at.get(&name)).collect();
        recorded.sort_unstable();
        recorded.dedup();
        let most = recorded.last().copied().unwrap_or(1);
        let knows = self.inputs.knows_sizes();
        let wanted = match self.wanted.filter(|_| knows) {
            Some(wanted) => wanted,
            None if !knows || !ooms.is_empty() => most,
            None => most * 2,
        };
        let step = self.step.unwrap_or_else(|| step_for(most.max(wanted))).max(1);
        // The largest size that fits is exact. It is rounded to steps only when the user chooses a step.
        let unit = self.step.unwrap_or(1).max(1);
        let limit = room.limit(self.held);
        let own = plan.own_setting(None).text;
        let mut asks = Vec::new();
        let mut ask = |ask: Ask| -> Option<Answer> {
            let answer = self.runs.get(&ask);
            asks.push(ask);
            answer
        };
        let own_point =
            |value: u64| Ask::Point { changes: String::new(), size: base.with(&name, value), conf: own.clone(), limit };
        let own_largest = || Ask::Largest { name: name.clone(), others: base.with(&name, most), conf: own.clone(), limit };
        let chosen_first = self.chosen.filter(|_| knows);
        if let Some(chosen) = chosen_first {
            ask(own_point(chosen));
        }
        let largest = if knows { ask(own_largest()).and_then(Answer::largest) } else { None };
        let fits = largest.as_ref().map(|l| (l.span[0] / unit * unit, l.span[1] / unit * unit));
        let (low, high) = extent(&recorded, wanted, fits.map(|f| f.1), step);
        // The slider's handle stays visible when another recording makes the axis shorter.
        let in_sight = chosen_first.filter(|&size| size / 2 <= high).unwrap_or(high);
        let (low, high) = (low.min(in_sight), high.max(in_sight));
        // When the largest size that fits is far beyond the axis, the figures are those of the wanted size.
        let chosen = chosen_first.unwrap_or_else(|| match fits {
            Some((sure, _)) if (low..=high).contains(&sure) => sure,
            Some((0, 0)) => low,
            Some((0, may)) if (low..=high).contains(&may) => may,
            _ if !knows => most,
            _ => wanted.clamp(low, high),
        });
        let fails_as_it_is = || {
            let own = self.runs.get(&own_point(most))?.point()?;
            (!knows && outcome(&own.capped) == Outcome::Fails).then_some(most)
        };
        let failure = fits.map(|(_, may)| may + unit).or_else(fails_as_it_is).and_then(|size| {
            match ask(Ask::Failure { size: base.with(&name, size), limit }) {
                Some(Answer::Failure(Some(failure))) => Some((size, failure)),
                _ => None,
            }
        });
        let sizes = if knows {
            let edge = fits.map_or(Vec::new(), |(sure, may)| vec![sure, may, may + unit]);
            let first: Vec<u64> = [chosen, wanted].into_iter().chain(recorded.iter().copied()).chain(edge).collect();
            order(low, high, step, &first).into_iter().take(MOST_POINTS).collect()
        } else {
            vec![most]
        };
        let all = sizes.len();
        let mut points: Vec<(u64, Arc<Point>)> = sizes.iter().filter_map(|&v| Some((v, ask(own_point(v))?.point()?))).collect();
        points.sort_by_key(|p| p.0);
        let at = points.iter().find(|p| p.0 == chosen).map(|p| Arc::clone(&p.1)).or_else(|| {
            // The size is beyond the axis or between its steps.
            ask(own_point(chosen))?.point()
        });
        let mut scene = Scene {
            plan: Arc::clone(plan),
            knows,
            limit,
            place: self.estimated(room).map_or_else(|| room_words(room), |cap| format!("in {cap}")),
            is_card: matches!(room, Room::Card(_)),
            own: own.clone(),
            recorded,
            wanted,
            step,
            unit,
            low,
            high,
            largest,
            fits,
            chosen,
            points,
            all,
            at_row: at.clone(),
            at,
            failure,
            recorded_failures: if plan.is_single() { ooms.to_vec() } else { Vec::new() },
            rows: Vec::new(),
            question: Question::Save,
            helping: 0,
            idle: 0,
            shows_idle: self.shows_idle,
            selected: 0,
            plotted: Vec::new(),
            is_hopeless: false,
            name,
            base,
        };
        self.rows(&mut scene, &mut ask);
        self.plot(&mut scene, &mut ask);
        if let Some(run) = self.chosen_row(&scene).and_then(|row| row.kind.run()) {
            scene.at_row = ask(run_ask(run, scene.size(chosen), limit)).and_then(Answer::point);
        }
        (scene, asks)
    }

    /// The recording's own cap, when that is the limit and only a range is known.
    pub(super) fn estimated(&self, room: Room) -> Option<CapRange> {
        self.estimate.filter(|cap| room == Room::Cap(cap.least))
    }

    /// The rows, best first. Requests the predictions that they still lack.
    fn rows(&self, scene: &mut Scene, ask: &mut impl FnMut(Ask) -> Option<Answer>) {
        let (limit, wanted, own) = (scene.limit, scene.wanted, scene.own.clone());
        let size = scene.size(wanted);
        // With one recording, everything is known at its own size.
        let is_single = scene.is_single() && !scene.recorded.contains(&wanted);
        let fails = scene.at_wanted().map(|p| outcome(&p.capped) != Outcome::Fits);
        let floor = |n: u64| n / scene.unit * scene.unit;
        let name = scene.knows.then(|| scene.name.clone());
        let mut rows: Vec<Row> = Vec::new();
        let own_figures = scene
            .at_wanted()
            .map(|p| Figures { largest: scene.fits.map(|f| [f.0, f.1]), ..Figures::of_point(p, "", &scene.plan, limit) });
        let mut first = Row::new(Kind::Own, "as recorded".to_owned(), (Cost::Setting, 0));
        first.figures = own_figures;
        for (i, (conf, _)) in SUGGESTED.into_iter().filter(|(conf, _)| *conf != own).enumerate() {
            let point = ask(run_ask(("", conf), size.clone(), limit)).and_then(Answer::point);
            let title = if conf.is_empty() { "PyTorch's default settings" } else { conf }.to_owned();
            rows.push(Row {
                figures: point.map(|p| Figures::of_point(&p, "nothing in the program", &scene.plan, limit)),
                code: Code::default().with_conf(conf),
                ..Row::new(Kind::Setting(conf.to_owned()), title, (Cost::Setting, i as u32 + 1))
            });
        }
        if let Some(row) = self.accumulation(scene, ask) {
            rows.push(row);
        }
        let change_ask = |changes: &str, conf: &str| Ask::Change {
            changes: changes.to_owned(),
            size: size.clone(),
            conf: conf.to_owned(),
            limit,
            name: name.clone(),
        };
        let row_of = |changes: &str, conf: &str, found: Option<Answer>| {
            change_row((changes, conf), &own, is_single, found.and_then(Answer::change).as_deref(), (&floor, limit))
        };
        let settings_known = rows.iter().filter(|r| r.is_setting()).all(|r| r.figures.is_some());
        let mut best: Option<Kind> = None;
        if fails == Some(true) && settings_known {
            if let Some(row) = rows.iter().find(|row| row.is_setting() && row.fits()) {
                best = Some(row.kind.clone());
            } else {
                let passes = rows.iter().find(|row| matches!(row.kind, Kind::Passes(..))).map(|row| row.kind.clone());
                let is_dearer = |changes: &str| Change::price_of(&Change::parse(changes).unwrap_or_default()) > Passes::price();
                match ask(Ask::Cheapest { size: size.clone(), limit }) {
                    Some(Answer::Cheapest(found)) if passes.is_some() && found.as_ref().is_none_or(|f| is_dearer(&f.0)) => {
                        best = passes;
                    }
                    // A setting alone already has its own row.
                    Some(Answer::Cheapest(Some((changes, conf)))) if changes.is_empty() => best = Some(Kind::Setting(conf)),
                    Some(Answer::Cheapest(Some((changes, conf)))) => {
                        let kind = best.insert(Kind::Changes(changes.clone(), conf.clone()));
                        if !is_listed(kind, &own) {
                            rows.push(row_of(&changes, &conf, ask(change_ask(&changes, &conf))));
                        }
                    }
                    Some(Answer::Cheapest(None)) => scene.is_hopeless = true,
                    _ => {}
                }
            }
        }
        // Adds the combination that the user made, unless it already has a row.
        if let Some(kind @ Kind::Changes(changes, conf)) = &self.row
            && !is_listed(kind, &own)
            && rows.iter().all(|row| row.kind != *kind)
        {
            rows.push(row_of(changes, conf, ask(change_ask(changes, conf))));
        }
        for change in Change::all() {
            let changes = change.name();
            rows.push(row_of(&changes, &own, ask(change_ask(&changes, &own))));
        }
        // The largest sizes under settings are computed last, because they take longest.
        for row in rows.iter_mut().filter(|_| scene.knows) {
            if let Kind::Setting(conf) = &row.kind
                && let Some(figures) = &mut row.figures
                && let Some(l) = ask(largest_ask(scene, conf, limit)).and_then(Answer::largest)
            {
                figures.largest = Some(l.span.map(floor));
            }
        }
        for row in &mut rows {
            row.is_best = best.as_ref() == Some(&row.kind);
        }
        // The cap is estimated as a range. A row that fails at its low end but fits at its high end may fit.
        let most = self.estimate.filter(|cap| cap.least == limit && !cap.is_known()).map_or(0, |cap| cap.most);
        for figures in rows.iter_mut().chain([&mut first]).filter_map(|row| row.figures.as_mut()) {
            if figures.outcome == Outcome::Fails && figures.peak <= most {
                (figures.outcome, figures.ends) = (Outcome::May, "may fit");
            }
        }
        let is_by_hand = |row: &Row| !row.is_best && Some(&row.kind) == self.row.as_ref() && !is_listed(&row.kind, &own);
        let rank = |row: &Row| match row.figures.as_ref().map(|f| &f.outcome) {
            _ if row.is_best => 0,
            _ if is_by_hand(row) => 1,
            Some(Outcome::Fits) => 2,
            Some(Outcome::May) => 3,
            Some(Outcome::Fails) => 4,
            None => 5,
            Some(Outcome::Useless(_)) => 6,
        };
        // The same order as on the command line: by rank; within a rank the rows that help, cheapest first. A row does not help
        // when it has no code, or when it is a setting that lowers no peak although everything fits.
        let recorded = first.figures.as_ref().filter(|_| first.fits()).map(|f| f.peak);
        let is_idle = |row: &Row| {
            let peak = row.figures.as_ref().map(|f| f.peak);
            row.code == Code::default() || row.is_setting() && recorded.zip(peak).is_some_and(|(recorded, peak)| peak >= recorded)
        };
        rows.sort_by_key(|row| (rank(row), is_idle(row), row.price));
        scene.rows = std::iter::once(first).chain(rows).collect();
        if let Some(kind @ Kind::Changes(..)) = &self.row
            && !is_listed(kind, &own)
        {
            let (changes, conf) = parts_of(kind, &own);
            for row in &mut scene.rows {
                row.is_part = match &row.kind {
                    Kind::Setting(text) => *text == conf && conf != own,
                    Kind::Changes(one, with) => *with == own && changes.iter().any(|c| c.name() == *one),
                    _ => false,
                };
            }
        }
        let own = scene.rows.first().and_then(|row| row.figures.clone());
        let answers = |row: &Row, question| Some(row.figures.as_ref()?.answers(question, own.as_ref()?));
        let fits = |row: &Row| answers(row, Question::Fit) == Some(true);
        let can_fit = fails == Some(true) && (!scene.is_hopeless || scene.rows.iter().any(fits));
        let question = if can_fit { Question::Fit } else { Question::Save };
        scene.question = question;
        scene.helping = scene.rows.iter().filter(|row| answers(row, question) == Some(true)).count();
        let is_idle = |row: &Row| {
            let is_wanted = row.is_best || row.is_part || row.kind == Kind::Own || Some(&row.kind) == self.row.as_ref();
            !is_wanted && answers(row, question) == Some(false)
        };
        scene.idle = scene.rows.iter().filter(|row| is_idle(row)).count();
        if !self.shows_idle {
            scene.rows.retain(|row| !is_idle(row));
        }
        let chosen = self.row.as_ref().and_then(|kind| scene.rows.iter().position(|row| row.kind == *kind));
        scene.selected = chosen.or_else(|| scene.rows.iter().position(|row| row.is_best)).unwrap_or(0);
    }

    /// Gradient accumulation: the wanted batch in several smaller passes, when one pass fits.
    fn accumulation(&self, scene: &Scene, ask: &mut impl FnMut(Ask) -> Option<Answer>) -> Option<Row> {
        let may = scene.fits.filter(|_| scene.name == "batch" && scene.knows)?.1;
        if scene.wanted <= may {
            return None;
        }
        let (size, name) = (scene.size(scene.wanted), scene.name.clone());
        let Some(Answer::Passes(Some(found))) = ask(Ask::Passes { size, name, limit: scene.limit }) else { return None };
        let Passes { passes, part, of_part, kept, .. } = &*found;
        let figures = Figures {
            peak: found.peak(),
            span: [of_part.peak_reserved_bytes, of_part.span[1] + kept],
            outcome: Outcome::Fits,
            ends: ENDS[0].0,
            retries: 0,
            largest: None,
            is_about: false,
            extra: (0, ""),
            cost: found.cost.clone(),
            // Memory kept between passes is added to the peak of one pass.
            trust: scene.plan.trust_of(of_part).max(Trust::Close),
        };
        let row = Row::new(Kind::Passes(*passes, *part), found.title(), Passes::price());
        Some(Row { figures: Some(figures), code: found.code(), ..row })
    }

    /// The curve of the selected row, with few points.
    fn plot(&self, scene: &mut Scene, ask: &mut impl FnMut(Ask) -> Option<Answer>) {
        const POINTS: usize = 9;
        if !scene.knows || scene.low >= scene.high {
            return;
        }
        let all = grid(scene.low, scene.high, scene.step);
        let stride = (all.len() / POINTS).max(1);
        let values: Vec<u64> = all.iter().copied().step_by(stride).chain([scene.low, scene.wanted, scene.high]).collect();
        let Some(run) = scene.rows.get(scene.selected).and_then(|row| row.kind.run()) else { return };
        let mut peak = |value: u64| {
            let point = ask(run_ask(run, scene.size(value), scene.limit)).and_then(Answer::point)?;
            Some((value, point.free.peak_reserved_bytes))
        };
        let mut plotted: Vec<(u64, u64)> = values.into_iter().filter_map(&mut peak).collect();
        plotted.sort_unstable();
        plotted.dedup();
        scene.plotted = plotted.into_iter().map(|(size, peak)| (size as f64, peak as f64)).collect();
    }
}

/// The question for the peak of a row's run at a size.
fn run_ask((changes, conf): (&str, &str), size: Size, limit: u64) -> Ask {
    Ask::Point { changes: changes.to_owned(), size, conf: conf.to_owned(), limit }
}

fn change_row(
    (changes, conf): (&str, &str),
    own: &str,
    is_single: bool,
    found: Option<&Changed>,
    (floor, limit): (&dyn Fn(u64) -> u64, u64),
) -> Row {
    let price = Change::price_of(&Change::parse(changes).unwrap_or_default());
    // Before a combination was simulated, its title is made from its changes.
    let words = |name: &str| Change::parse(name).unwrap_or_default().iter().map(|c| c.title(None)).collect::<Vec<_>>().join("; ");
    let title = found.map_or_else(|| words(changes), |c| c.title.clone());
    let title = titled(&title, conf, own);
    let figures = found.map(|c| Figures {
        peak: c.peak_reserved_bytes,
        span: c.span,
        outcome: match (&c.reason, c.oom_varies, c.oom) {
            (Some(why), ..) => Outcome::Useless(why.clone()),
            (None, true, _) => Outcome::May,
            // "May fit" is not a plain failure, and a run that fits only up to the end of its recording is not a plain success.
            (None, false, _) if c.ends(limit) == "may fit" => Outcome::May,
            (None, false, true) => Outcome::Fails,
            (None, false, false) => Outcome::Fits,
        },
        ends: c.ends(limit),
        retries: c.retries,
        largest: c.largest_span.map(|span| span.map(floor)),
        is_about: is_single,
        extra: c.extra(),
        cost: c.cost.clone(),
        trust: c.trust,
    });
    // Changes that do not help get no code to paste.
    let helps = found.is_some_and(|c| c.helps);
    let code = found.filter(|_| helps).map_or_else(Code::default, |c| c.code.clone());
    let code = if conf == own || !helps { code } else { code.with_conf(conf) };
    let price = (price.0, price.1 + u32::from(conf != own));
    Row { figures, code, ..Row::new(Kind::Changes(changes.to_owned(), conf.to_owned()), title, price) }
}

/// True for a row of the initial list, as opposed to a combination: a single change under the recorded settings.
fn is_listed(kind: &Kind, own: &str) -> bool {
    !matches!(kind, Kind::Changes(changes, conf) if changes.contains('+') || conf != own)
}

/// The changes and the settings of a row.
fn parts_of(kind: &Kind, own: &str) -> (Vec<Change>, String) {
    let (changes, conf) = kind.run().unwrap_or(("", own));
    let changes = if changes.is_empty() { Vec::new() } else { Change::parse(changes).unwrap_or_default() };
    (changes, conf.to_owned())
}

/// Combines two rows: what the second has is added, or removed when the first already has it. Of two changes that exclude each
/// other, the second one stays.
pub(super) fn combined(chosen: &Kind, more: &Kind, own: &str) -> Kind {
    let ((mut changes, mut conf), (added, setting)) = (parts_of(chosen, own), parts_of(more, own));
    for change in added {
        if changes.contains(&change) {
            changes.retain(|c| *c != change);
        } else {
            changes.retain(|c| !c.excludes(&change));
            changes.push(change);
        }
    }
    if let Kind::Setting(text) = more {
        conf = if conf == *text { own.to_owned() } else { text.clone() };
    } else if setting != own {
        conf = setting;
    }
    // Sorted, so that the same set has the same name whatever the order of clicks.
    let all = Change::all();
    changes.sort_by_key(|c| all.iter().position(|a| a.name() == c.name()));
    let names: Vec<String> = changes.iter().map(Change::name).collect();
    match (names.is_empty(), conf == own) {
        (true, true) => Kind::Own,
        (true, false) => Kind::Setting(conf),
        (false, _) => Kind::Changes(names.join("+"), conf),
    }
}
