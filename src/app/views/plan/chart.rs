//! The middle column: the peak by size, whether each size fits, the slider, and roles by size.

use egui::{
    Align2, Color32, CursorIcon, PointerButton, Pos2, Rangef, Rect, Response, Role, Sense, Shape, Stroke, Ui, WidgetInfo, pos2,
    vec2,
};

use super::ViewContext;
use super::at::roles_of;
use super::layout::{between, grid};
use super::model::PlanView;
use super::scene::{Kind, Outcome, Scene, outcome};
use crate::app::data::colours::role_paint;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{
    Batch, Cut, DASH_LIMIT, PixelColumn, Scale, Tip, byte_scale, event_ticks, keys, label, most_across, paint_chip,
    paint_chip_in, paint_flag, spread, told_at,
};
use vramscope_core::plan::ENDS;
use vramscope_core::units::{Bytes, count, counted};

/// Width left of the plots, for their names and axis labels.
const GUTTER: f32 = 84.0;
/// Width right of the plots, for the names of the curves.
const MARGIN: f32 = 132.0;

/// Height of the figures at the chosen size.
const READOUT: f32 = 40.0;
/// With less height for both plots, only one is drawn: in fewer than 70 points roles cannot be told apart.
const LEAST_REST: f32 = 210.0;
/// Label of the limit, the outcomes and the roles while a row is chosen, because these are still of the recorded program.
const AS_RECORDED: &str = "as recorded";
/// Narrower cells with the same outcome are merged.
const LEAST_CELL: f32 = 14.0;

struct Parts {
    peak: Rect,
    outcome: Rect,
    slider: Rect,
    roles: Option<Rect>,
}

fn parts(area: Rect) -> Parts {
    let margin = if area.width() >= 620.0 { MARGIN } else { 92.0 };
    let (left, right) = (area.left() + GUTTER, area.right() - margin);
    let strip = |top: f32, height: f32| area.across(left, right).down(top, top + height);
    // The outcomes take 16 with 10 above, the slider 36 with 4 above. The roles go below when there is room.
    let rest = area.height() - 18.0 - 26.0 - 42.0;
    let roles = if rest >= LEAST_REST { (rest * 0.34).round() } else { 0.0 };
    let peak = strip(area.top() + 18.0, (rest - roles - if roles > 0.0 { 18.0 } else { 0.0 }).max(60.0));
    let outcome = strip(peak.bottom() + 10.0, 16.0);
    let slider = strip(outcome.bottom() + 4.0, 36.0);
    Parts { peak, outcome, slider, roles: (roles > 0.0).then(|| strip(slider.bottom() + 14.0, roles - 8.0)) }
}

impl PlanView {
    pub(super) fn charts(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let parts = parts(ui.max_rect());
        let pad = (scene.high - scene.low).max(1) as f64 * 0.012;
        let x = Scale::horizontal(scene.low as f64 - pad, scene.high as f64 + pad, parts.peak.x_range());
        let greatest = self.peak_chart(ui, cx, scene, parts.peak, &x);
        self.outcomes(ui, cx, scene, parts.outcome, &x);
        self.slider(ui, cx, scene, parts.slider, &x);
        if let Some(rect) = parts.roles {
            self.role_chart(ui, cx, scene, rect, &x, greatest);
        }
        let t = cx.tokens;
        // While a row is chosen, these are still the figures of the recorded program.
        let whose = if self.chosen_row(scene).is_some() { AS_RECORDED } else { "" };
        if let Some(rect) = parts.roles.filter(|_| !whose.is_empty()) {
            paint_chip_in(
                ui.painter(),
                rect.left_top() + vec2(4.0, 8.0),
                Align2::LEFT_CENTER,
                whose,
                Type::Caption,
                t.text2,
                t.s1,
            );
        }
        let down = Rangef::new(parts.peak.top() - 6.0, parts.outcome.bottom());
        let mut batch = Batch::new(ui.painter());
        let at = x.at(scene.chosen as f64);
        // When no size fits, there is no boundary to draw.
        if let Some(edge) = edge(scene, &x, parts.peak).filter(|edge| *edge > parts.peak.left()) {
            for rect in [Some(parts.peak), parts.roles].into_iter().flatten() {
                batch.vline(edge, rect.y_range(), 1.0, t.red);
            }
        }
        batch.vline(at, down, 1.0, t.text1);
        if let Some(rect) = parts.roles {
            batch.vline(at, rect.y_range(), 1.0, t.text1);
        }
        batch.paint(ui.painter());
        cliff(ui.painter(), cx, scene, parts.peak, &x, whose);
        self.readout(ui, cx, scene, parts.peak, &x, greatest);
    }

    /// Draws the curve of peaks. Returns the top of its scale in bytes.
    fn peak_chart(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene, rect: Rect, x: &Scale) -> f64 {
        let t = cx.tokens;
        let free = scene.curve(|p| p.free.peak_reserved_bytes);
        let allocated = scene.curve(|p| p.free.peak_allocated_bytes);
        let low = scene.curve(|p| p.free.span[0].min(p.free.peak_reserved_bytes));
        let high = scene.curve(|p| p.free.span[1].max(p.free.peak_reserved_bytes));
        let most = high.iter().chain(&scene.plotted).map(|p| p.1 as u64).max().unwrap_or(0);
        let limit = scene.limit;
        // A limit far above all curves is left out, because it would flatten them.
        let shows_limit = limit < most.saturating_mul(3);
        let greatest = (most.max(if shows_limit { limit } else { 0 }).max(1) as f64 * 1.06).max(1.0);
        let y = Scale::vertical(0.0, greatest, rect.y_range());
        let p = ui.painter().clone();
        byte_scale(&p, t, rect, &y, rect.left() - GUTTER + 12.0, "Peak");
        let mut batch = Batch::new(&p).hatch_origin(rect.min);
        let columns = columns_of(&batch, rect);
        let at = |points: &[(f64, f64)], px: f32| between(points, x.value(px)).map(|v| y.at(v));
        let fill: Vec<Option<PixelColumn>> = columns.iter().map(|&px| at(&allocated, px).map(PixelColumn::level)).collect();
        batch.fill_under(&fill, rect.left(), rect.bottom(), Tokens::over(t.slot(0), t.s1, 0.18));
        let free_columns: Vec<(f32, f32)> =
            columns.iter().map(|&px| at(&free, px).zip(at(&allocated, px)).unwrap_or_default()).collect();
        batch.hatch_between(&free_columns, rect.left(), t.hatch_large);
        let band = columns.iter().map(|&px| at(&high, px).zip(at(&low, px)));
        batch.bands(band, rect.left(), Tokens::at(t.text1, 0.2));
        batch.paint(&p);
        line(&p, &allocated, x, &y, 1.25, t.slot(0));
        line(&p, &free, x, &y, 1.25, t.text2);
        line(&p, &scene.plotted, x, &y, 1.5, t.slot(2));
        // Sizes that fit are drawn with their peak under the limit.
        let fitting: Vec<(f64, f64)> = scene
            .points
            .iter()
            .filter(|(_, p)| !p.capped.oom)
            .map(|(v, p)| (*v as f64, p.capped.peak_reserved_bytes as f64))
            .collect();
        let mut veil = Batch::new(&p);
        if let Some(edge) = edge(scene, x, rect) {
            veil.rect(rect.with_min_x(edge), Tokens::at(t.s1, 0.45));
        }
        if shows_limit {
            veil.dashed_hline(rect.x_range(), y.at(limit as f64), 1.0, DASH_LIMIT, t.red);
        }
        veil.paint(&p);
        line(&p, &fitting, x, &y, 2.0, t.text1);
        dots(&p, t, scene, x, &y);
        if shows_limit {
            // The label keeps its place while the size is dragged. The readout of a size at the left moves out of its way.
            let at = pos2(rect.left() + 6.0, y.at(limit as f64) - 3.0);
            label::text(&p, at, Align2::LEFT_BOTTOM, &limit_words(limit), Type::Mono, t.red);
        }
        ends(&p, t, scene, rect, &y, [&free, &allocated, &scene.plotted], ui.max_rect().right());
        if scene.points.len() < scene.all {
            let words = format!("{} of {} sizes", scene.points.len(), scene.all);
            label::text(&p, rect.right_bottom() - vec2(6.0, 4.0), Align2::RIGHT_BOTTOM, &words, Type::Caption, t.text3);
        }
        self.pick(ui, scene, rect, x, "Peak against size");
        greatest
    }

    fn pick(&mut self, ui: &Ui, scene: &Scene, rect: Rect, x: &Scale, name: &str) {
        let response = told_at(ui, rect, name, Sense::click_and_drag(), Role::Image, || name);
        self.choose_at_pointer(scene, x, &response);
        response.on_hover_cursor(CursorIcon::Crosshair);
    }

    /// A click or drag chooses the size there.
    fn choose_at_pointer(&mut self, scene: &Scene, x: &Scale, response: &Response) {
        let at = response.interact_pointer_pos();
        if let Some(at) = at.filter(|_| response.clicked() || response.dragged_by(PointerButton::Primary)) {
            self.choose(scene, x.value(at.x));
        }
    }

    /// Chooses the size nearest to a position on the axis.
    fn choose(&mut self, scene: &Scene, value: f64) {
        let values = grid(scene.low, scene.high, scene.step).into_iter().chain(scene.recorded.iter().copied());
        (self.chosen, self.takes_keys) = (nearest(values, value).or(self.chosen), true);
    }

    /// The figures of the chosen size, beside the line that marks it.
    fn readout(&self, ui: &Ui, cx: &ViewContext<'_>, scene: &Scene, rect: Rect, x: &Scale, greatest: f64) {
        let Some(point) = &scene.at else { return };
        let t = cx.tokens;
        let y = Scale::vertical(0.0, greatest, rect.y_range());
        let at = x.at(scene.chosen as f64);
        let is_left = at > rect.center().x;
        let (place, anchor) = if is_left { (at - 8.0, Align2::RIGHT_TOP) } else { (at + 8.0, Align2::LEFT_TOP) };
        let shown = &point.capped;
        // Placed below all curves when there is room there or none above them.
        let reach = if is_left { [at - 220.0, at] } else { [at, at + 220.0] };
        let heights = |curve: &[(f64, f64)]| -> Vec<f32> {
            let places = (0..=8).map(|i| reach[0] + (reach[1] - reach[0]) * i as f32 / 8.0);
            places.filter_map(|px| between(curve, x.value(px))).map(|bytes| y.at(bytes)).collect()
        };
        let (allocated, high) = (scene.curve(|p| p.free.peak_allocated_bytes), scene.curve(|p| p.free.span[1]));
        let lowest = heights(&allocated).into_iter().chain(heights(&scene.plotted)).fold(rect.top(), f32::max);
        let highest = heights(&high).into_iter().chain(heights(&scene.plotted)).fold(rect.bottom(), f32::min);
        let is_below = lowest + 10.0 + READOUT <= rect.bottom() || highest - 24.0 - READOUT < rect.top() + 18.0;
        let mut top = if is_below { (lowest + 10.0).min(rect.bottom() - READOUT) } else { highest - 24.0 - READOUT };
        // Does not cover the label of the limit.
        let line = y.at(scene.limit as f64);
        let name = rect.left() + 12.0 + label::width(ui.painter(), &limit_words(scene.limit), Type::Mono);
        if line > rect.top() && reach[0] < name && top < line && top + READOUT > line - 18.0 {
            top = line + 6.0;
        }
        let how = match outcome(shown) {
            Outcome::Fails => " without the limit".to_owned(),
            _ if shown.retries > 0 => format!(", {}", counted(shown.retries, "retry", "retries")),
            _ => String::new(),
        };
        let reserved = format!("{} reserved{how}", Bytes(shown.peak_reserved_bytes));
        // While a row is chosen, shows the peaks of both runs with their names.
        let chips = match (self.chosen_row(scene), &scene.at_row) {
            (Some(_), with) => {
                let with = with.as_ref().map_or("\u{2026}".to_owned(), |p| Bytes(p.capped.peak_reserved_bytes).to_string());
                [format!("{reserved}, as recorded"), format!("{with} with the chosen row")]
            }
            (None, _) => [reserved, format!("{} allocated", Bytes(shown.peak_allocated_bytes))],
        };
        for (i, words) in chips.iter().enumerate() {
            paint_chip(ui.painter(), t, pos2(place, top + 20.0 * i as f32), anchor, words);
        }
    }

    /// One cell per size: whether it fits.
    fn outcomes(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene, rect: Rect, x: &Scale) {
        let t = cx.tokens;
        let p = ui.painter().clone();
        label::text(&p, rect.middle(rect.left() - GUTTER + 12.0), Align2::LEFT_CENTER, "Outcome", Type::Body, t.text2);
        let half = scene.step as f64 / 2.0;
        let cells = grid(scene.low, scene.high, scene.step);
        let mut batch = Batch::new(&p).hatch_origin(rect.min);
        let cell = |value: u64| {
            let from = x.at(value as f64 - half).max(rect.left());
            rect.across(from, x.at(value as f64 + half).min(rect.right()))
        };
        // A size that was not simulated gets an outcome only when its neighbours on both sides agree.
        let ends = |value: u64| -> Option<Outcome> {
            let at = scene.points.partition_point(|(v, _)| *v < value);
            let of = |i: usize| scene.points.get(i).map(|(v, p)| (*v, outcome(&p.capped)));
            match (at.checked_sub(1).and_then(of), of(at)) {
                (_, Some((v, end))) if v == value => Some(end),
                (Some((_, a)), Some((_, b))) if a == b => Some(a),
                _ => None,
            }
        };
        let retries = |value: u64| {
            let at = scene.points.binary_search_by_key(&value, |p| p.0).ok()?;
            Some(scene.points[at].1.capped.retries).filter(|n| *n > 0)
        };
        let mut numbers: Vec<(Rect, u64)> = Vec::new();
        let [mut fits, mut may, mut fails]: [Option<Rect>; 3] = [None; 3];
        let is_narrow = cell(scene.low + scene.step).width() < LEAST_CELL;
        let mut runs: Vec<(Rect, u64)> = Vec::new();
        for &value in &cells {
            let place = cell(value);
            match runs.last_mut() {
                Some((run, first)) if is_narrow && ends(*first) == ends(value) && retries(*first) == retries(value) => {
                    *run = run.union(place);
                }
                _ => runs.push((place, value)),
            }
        }
        for (place, value) in runs {
            let inner = place.with_max_x((place.right() - 1.0).max(place.left() + 1.0));
            let union = |all: &mut Option<Rect>| *all = Some(all.map_or(inner, |r: Rect| r.union(inner)));
            match ends(value) {
                Some(Outcome::Fits) => {
                    let again = retries(value);
                    batch.rect(inner, if again.is_some() { t.s4 } else { t.s3 });
                    match again {
                        Some(n) => numbers.push((inner, n)),
                        None => union(&mut fits),
                    }
                }
                Some(Outcome::May) => {
                    batch.hole(inner, t.s2, t.hatch, t.line2);
                    union(&mut may);
                }
                Some(Outcome::Fails) => {
                    batch.rect(inner, t.redbg);
                    union(&mut fails);
                }
                _ => batch.outline(inner, 1.0, t.line),
            }
        }
        batch.outline(cell(scene.chosen).expand2(vec2(1.0, 1.0)), 1.0, t.text1);
        batch.paint(&p);
        let has_retries = !numbers.is_empty();
        let has_row = self.chosen_row(scene).is_some();
        let room = |(place, n): &(Rect, u64)| label::width(&p, &count(*n), Type::Mono) + 2.0 <= place.width();
        let are_told = numbers.iter().any(room);
        for (place, n) in numbers.into_iter().filter(room) {
            label::text(&p, place.center(), Align2::CENTER_CENTER, &count(n), Type::Mono, t.text1);
        }
        let fails_here = fails.filter(|r| r.width() >= label::width(&p, ENDS[4].0, Type::Caption) + 12.0);
        for (all, words, ink) in [(fits, ENDS[0].0, t.text2), (fails_here, ENDS[4].0, t.red)] {
            if let Some(all) = all.filter(|r| r.width() >= 36.0) {
                let whose = format!("{words} {AS_RECORDED}");
                let has_room = label::width(&p, &whose, Type::Caption) + 12.0 <= all.width();
                let words = if has_row && has_room { &whose } else { words };
                label::text(&p, all.middle(all.left() + 6.0), Align2::LEFT_CENTER, words, Type::Caption, ink);
            }
        }
        // The meanings of the other colours are shown beside the cells.
        let place = rect.across(rect.right() + 12.0, ui.max_rect().right() - 6.0);
        let mut lines = Vec::new();
        lines.extend(fails.filter(|_| fails_here.is_none()).map(|_| "red: does not fit"));
        lines.extend(may.map(|_| "hatched: may fit"));
        lines.extend(has_retries.then_some(if are_told { "number: retries" } else { "darker: retries" }));
        for (i, words) in lines.iter().enumerate() {
            let line = place.translate(vec2(0.0, (i as f32 - (lines.len() - 1) as f32 / 2.0) * 13.0));
            label::text_in(&p, line, words, Type::Caption, t.text3);
        }
        let response = told_at(ui, rect, "outcome", Sense::click_and_drag(), Role::Image, || "Outcome of each size");
        self.choose_at_pointer(scene, x, &response);
        if let Some(at) = response.hover_pos()
            && let Some(near) = nearest(cells.into_iter(), x.value(at.x))
        {
            let told = |i: usize| format!("{}: {}", ENDS[i].0, ENDS[i].1);
            let words = match (ends(near), retries(near)) {
                (Some(Outcome::Fits), Some(n)) => {
                    format!("fits; PyTorch gives cached memory back {}", counted(n, "time", "times"))
                }
                (Some(Outcome::Fits), None) => told(0),
                (Some(Outcome::May), _) => told(2),
                (Some(Outcome::Fails), _) => told(4),
                _ => "not tried yet".to_owned(),
            };
            Tip::new(scene.named(near)).note(words).show(&response);
        }
    }

    /// The slider. Keys: arrows, Shift + arrows, Home, End, L, W.
    fn slider(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene, rect: Rect, x: &Scale) {
        let t = cx.tokens;
        let response = ui.interact(rect.expand2(vec2(6.0, 0.0)), ui.scope_id().with("size slider"), Sense::click_and_drag());
        response.widget_info(|| {
            WidgetInfo::slider(ui.is_enabled(), scene.chosen as f64, vramscope_core::units::capital(&scene.name))
        });
        self.choose_at_pointer(scene, x, &response);
        // The slider takes the arrow keys as soon as the view appears, unless another control has the focus.
        let frame = ui.ctx().cumulative_frame_nr();
        let has_come = self.drawn_in.replace(frame).is_none_or(|last| last + 1 < frame);
        if std::mem::take(&mut self.takes_keys) || (has_come && ui.memory(|m| m.focused().is_none())) {
            response.request_focus();
        }
        keys::take_bare_keys(&response);
        if response.has_focus() {
            self.slider_keys(ui, scene);
        }
        let p = ui.painter().clone();
        let y = rect.top() + 8.0;
        let name = vramscope_core::units::capital(&scene.name);
        label::text(&p, pos2(rect.left() - GUTTER + 12.0, y), Align2::LEFT_CENTER, &name, Type::Body, t.text2);
        let at = x.at(scene.chosen as f64);
        let bar = rect.down(y - 1.5, y + 1.5);
        p.rect_filled(bar, 1, t.s4);
        p.rect_filled(bar.with_max_x(at), 1, t.accent);
        let ticks = event_ticks(scene.low as f64, scene.high as f64, most_across(rect.width()));
        let chip_text = count(scene.chosen);
        let half = label::width(&p, &chip_text, Type::Mono) / 2.0 + 10.0;
        for (value, words) in &ticks.ticks {
            let place = x.at(*value);
            if value.fract() != 0.0 || (place - at).abs() < half + label::width(&p, words, Type::Mono) / 2.0 {
                continue;
            }
            p.vline(place, Rangef::new(y + 5.0, y + 9.0), Stroke::new(1.0, t.line2));
            label::text(&p, pos2(place, y + 19.0), Align2::CENTER_CENTER, words, Type::Mono, t.text3);
        }
        let knob = Rect::from_center_size(pos2(at, y), vec2(7.0, 17.0));
        p.rect_filled(
            knob,
            2,
            if response.hovered() || response.dragged() { Tokens::over(t.text1, t.accent, 0.2) } else { t.accent },
        );
        paint_chip(&p, t, pos2(at, y + 11.0), Align2::CENTER_TOP, &chip_text);
        if response.has_focus() {
            p.rect_stroke(knob.expand(2.0), 3, Stroke::new(1.0, t.accent), egui::StrokeKind::Outside);
        }
        response.on_hover_cursor(CursorIcon::ResizeHorizontal);
    }

    fn slider_keys(&mut self, ui: &Ui, scene: &Scene) {
        use egui::{Key, Modifiers};
        let mut steps = 0i64;
        let mut to = None;
        ui.input_mut(|i| {
            let shifted = i.count_and_consume_key(Modifiers::SHIFT, Key::ArrowRight) as i64
                - i.count_and_consume_key(Modifiers::SHIFT, Key::ArrowLeft) as i64;
            let single = i.count_and_consume_key(Modifiers::NONE, Key::ArrowRight) as i64
                - i.count_and_consume_key(Modifiers::NONE, Key::ArrowLeft) as i64;
            steps = single + 8 * shifted;
            for (key, value) in [
                (Key::Home, Some(scene.low)),
                (Key::End, Some(scene.high)),
                (Key::L, scene.fits.map(|f| f.0).filter(|f| *f > 0)),
                (Key::W, Some(scene.wanted)),
            ] {
                if i.consume_key(Modifiers::NONE, key) {
                    to = value.or(to);
                }
            }
        });
        let step = i64::try_from(scene.unit).unwrap_or(1);
        let at = i64::try_from(scene.chosen).unwrap_or(1);
        let moved = (at / step + steps) * step;
        let target = to.or((steps != 0).then(|| u64::try_from(moved).unwrap_or(scene.low)));
        if let Some(target) = target {
            self.chosen = Some(target.clamp(scene.low, scene.high));
        }
    }

    fn role_chart(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene, rect: Rect, x: &Scale, greatest: f64) {
        let t = cx.tokens;
        let p = ui.painter().clone();
        let y = Scale::vertical(0.0, greatest, rect.y_range());
        byte_scale(&p, t, rect, &y, rect.left() - GUTTER + 12.0, "By role");
        let mut batch = Batch::new(&p).hatch_origin(rect.min);
        let columns = columns_of(&batch, rect);
        let order = roles_of(scene.points.iter().map(|(_, p)| &p.free));
        let at = |points: &[(f64, f64)], px: f32| between(points, x.value(px)).map(|v| y.at(v));
        let mut below = scene.curve(|_| 0);
        for role in &order {
            let above: Vec<(f64, f64)> = scene
                .points
                .iter()
                .zip(&below)
                .map(|((v, p), (_, base))| (*v as f64, base + p.free.by_role.get(role.name()).copied().unwrap_or(0) as f64))
                .collect();
            let ink = role_paint(*role).colour(t);
            let ink = if self.role.is_some_and(|r| r != role.name()) { Tokens::over(ink, t.s1, 0.25) } else { ink };
            let spans = columns.iter().map(|&px| at(&above, px).zip(at(&below, px)));
            batch.bands(spans, rect.left(), ink);
            below = above;
        }
        let reserved = scene.curve(|p| p.free.peak_reserved_bytes);
        let free: Vec<(f32, f32)> = columns.iter().map(|&px| at(&reserved, px).zip(at(&below, px)).unwrap_or_default()).collect();
        batch.hatch_between(&free, rect.left(), t.hatch_large);
        if let Some(edge) = edge(scene, x, rect) {
            batch.rect(rect.with_min_x(edge), Tokens::at(t.s1, 0.62));
        }
        if (scene.limit as f64) < greatest {
            batch.dashed_hline(rect.x_range(), y.at(scene.limit as f64), 1.0, DASH_LIMIT, t.red);
        }
        batch.paint(&p);
        line(&p, &reserved, x, &y, 1.25, t.text2);
        if let (Some((_, last)), Some(role)) = (scene.points.last(), order.last()) {
            let most = order.iter().max_by_key(|r| last.free.by_role.get(r.name()).copied().unwrap_or(0)).unwrap_or(role);
            let bytes = last.free.by_role.get(most.name()).copied().unwrap_or(0);
            beside(&p, t, rect, (rect.center().y, ui.max_rect().right()), most.text(), bytes);
        }
        self.pick(ui, scene, rect, x, "Roles against size");
    }
}

fn nearest(sizes: impl Iterator<Item = u64>, to: f64) -> Option<u64> {
    let away = |size: u64| (size as f64 - to).abs();
    sizes.min_by(|a, b| away(*a).total_cmp(&away(*b)))
}

/// The x at which sizes start to fail.
fn edge(scene: &Scene, x: &Scale, rect: Rect) -> Option<f32> {
    let fails = scene.fails().filter(|f| *f <= scene.high)?;
    Some(x.at(fails as f64 - scene.unit as f64 / 2.0).max(rect.left()))
}

/// Marks the first size that fails with a flag and a sentence.
fn cliff(p: &egui::Painter, cx: &ViewContext<'_>, scene: &Scene, rect: Rect, x: &Scale, whose: &str) {
    let t = cx.tokens;
    let Some(fails) = scene.fails() else { return };
    if fails > scene.high {
        let words = format!("first fails at {}, right of here", count(fails));
        let at = rect.right_top() + vec2(-4.0, 2.0);
        paint_chip_in(p, at, Align2::RIGHT_TOP, &words, Type::Body, t.text2, t.s1);
        return;
    }
    let Some(edge) = edge(scene, x, rect) else { return };
    let flag = paint_flag(p, t, pos2(edge + 15.0, rect.top() + 1.0), "OOM");
    let words = match &scene.failure {
        Some((size, f)) => format!("{} first fails at event {}", count(*size), count(u64::from(f.event))),
        None => format!("{} fails", count(fails)),
    };
    let words = if whose.is_empty() { words } else { format!("{words}, {whose}") };
    // Includes the chip's margins. Otherwise the chip would flip to the other side and cover the flag.
    let width = label::width(p, &words, Type::Body) + 8.0;
    let room = p.clip_rect().right() - 8.0;
    let (at, anchor) = if flag.right() + 6.0 + width <= room {
        (flag.middle(flag.right() + 6.0), Align2::LEFT_CENTER)
    } else {
        (flag.middle(flag.left() - 6.0), Align2::RIGHT_CENTER)
    };
    // Opaque, because the line of the chosen size may be behind it.
    paint_chip_in(p, at, anchor, &words, Type::Body, t.text1, t.s1);
}

/// The label of the limit, at the left end of its line.
fn limit_words(limit: u64) -> String {
    format!("limit {}", Bytes(limit))
}

/// The centres of a rectangle's physical pixel columns.
fn columns_of(batch: &Batch, rect: Rect) -> Vec<f32> {
    let pixel = batch.pixel();
    let left = batch.snap(rect.left());
    (0..(rect.width() / pixel).round() as usize).map(|i| left + (i as f32 + 0.5) * pixel).collect()
}

fn line(p: &egui::Painter, points: &[(f64, f64)], x: &Scale, y: &Scale, width: f32, ink: Color32) {
    let at: Vec<Pos2> = points.iter().map(|&(v, b)| pos2(x.at(v), y.at(b))).collect();
    if at.len() > 1 {
        p.add(Shape::line(at, Stroke::new(width, ink)));
    }
}

/// Recorded sizes as rings, predicted sizes as dots. The header explains both.
fn dots(p: &egui::Painter, t: &Tokens, scene: &Scene, x: &Scale, y: &Scale) {
    for (value, point) in &scene.points {
        let shown = if point.capped.oom { &point.free } else { &point.capped };
        let at = pos2(x.at(*value as f64), y.at(shown.peak_reserved_bytes as f64));
        if !scene.recorded.contains(value) {
            if scene.points.len() <= 40 {
                p.circle_filled(at, 2.0, if point.capped.oom { t.text2 } else { t.text1 });
            }
            continue;
        }
        p.circle(at, 4.5, t.s1, Stroke::new(1.5, t.text1));
        let below = pos2(at.x, y.at(shown.peak_allocated_bytes as f64));
        p.circle(below, 3.5, t.s1, Stroke::new(1.5, t.slot(0)));
    }
}

/// Names and figures of the curves, at their right ends.
fn ends(p: &egui::Painter, t: &Tokens, scene: &Scene, rect: Rect, y: &Scale, curves: [&[(f64, f64)]; 3], right: f32) {
    let row = scene.rows.get(scene.selected);
    let plotted = match row.map(|r| &r.kind) {
        Some(Kind::Own | Kind::Passes(..)) | None => String::new(),
        Some(Kind::Setting(conf)) => conf.replace(":True", "").replace('_', " "),
        Some(Kind::Changes(changes, conf)) => {
            let with = if *conf == scene.own { "" } else { " + setting" };
            format!("{}{with}", changes.replace('_', " ").replace('+', " + "))
        }
    };
    // The table has the full title; here a short one must do.
    let is_long = label::width(p, &plotted, Type::Caption) > right - 18.0 - rect.right();
    let plotted = if is_long { "the chosen row".to_owned() } else { plotted };
    let names = [("reserved, no limit".to_owned(), t.text2), ("allocated".to_owned(), t.slot(0)), (plotted, t.slot(2))];
    let named: Vec<(f64, String, Color32)> = curves
        .iter()
        .zip(names)
        .filter_map(|(curve, (name, ink))| Some((curve.last()?.1, name, ink)).filter(|(_, name, _)| !name.is_empty()))
        .collect();
    let wanted: Vec<f32> = named.iter().map(|(v, ..)| y.at(*v)).collect();
    let places = spread(&wanted, 32.0, Rangef::new(rect.top() + 8.0, rect.bottom() - 12.0));
    for (((value, name, ink), from), to) in named.iter().zip(&wanted).zip(&places) {
        p.line_segment([pos2(rect.right() + 1.0, *from), pos2(rect.right() + 8.0, *to)], Stroke::new(1.0, *ink));
        beside(p, t, rect, (*to, right), name, *value as u64);
    }
}

/// A name above its bytes, right of a plot, at the height `y`.
fn beside(p: &egui::Painter, t: &Tokens, plot: Rect, (y, right): (f32, f32), name: &str, bytes: u64) {
    let place = plot.across(plot.right() + 12.0, right - 6.0);
    label::text_in(p, place.down(y - 14.0, y), name, Type::Caption, t.text2);
    label::text_in(p, place.down(y, y + 14.0), &Bytes(bytes).to_string(), Type::Mono, t.text1);
}
