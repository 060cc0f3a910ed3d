//! The fragmentation view: addresses over time, shaded by their contents, below the largest hole compared with the failed
//! request.

use std::sync::Arc;

use egui::{Rect, Role, Sense, Ui, pos2};

use super::{View, ViewContext, ViewInfo};
use crate::app::data::colours::{Focus, stream_name};
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Item, ViewKind};
use crate::app::widgets::{ByteWheel, LARGEST_SIDE, PixelTexture, Rest, Scale, button, pane, push_over, term, told_at};
use layout::Areas;
use picture::{Key, Map, Mode, Picture};
use vramscope_core::diagnose::fragmentation::Servers;
use vramscope_core::diagnose::source_limits::why_no_segments;
use vramscope_core::model::{DeviceRecording, SizeClass, StreamId};
use vramscope_core::tables::SegmentLife;

mod gestures;
mod layout;
mod paint;
mod picture;

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Heatmap,
    legend: &[
        ("top", "the largest hole over time; what is higher than the axis is cut off and marked"),
        ("red dashes", "the request that failed; holes are those of the segments that could serve it"),
        ("shade", "how full a place is; choose age, sizes of blocks or of holes above"),
        ("hatched", "reserved and free; darker ground without hatch: not reserved at that time"),
        ("ticks above", "red: a request failed; amber: segments freed to try again; grey: segments freed"),
        ("bright mark", "where the largest hole was, at least 2 px high"),
        ("address", "segments stand end to end, lowest address above"),
        ("a column", "the state at the instant of its peak, as in the timeline"),
        ("click", "set the cursor there and select the block or hole"),
        ("Ctrl + wheel", "zoom addresses at the pointer; drag pans them too"),
        ("right drag", "draw a box: zooms to its time and its addresses; Esc cancels"),
        ("drag the labels", "zoom to a range of addresses; double click shows all"),
        ("right click", "copy the address, show it in the segment map, its segment's life"),
    ],
    create: || Box::new(HeatmapView::default()),
};

#[derive(Default)]
struct HeatmapView {
    mode: Mode,
    /// Shows only the segments that serve these requests.
    only: Option<Servers>,
    picture: Derived<Key, Picture>,
    texture: PixelTexture,
    /// The address range of the map; `None` for all.
    addresses: Option<(u64, u64)>,
    /// [`SharedViewState::fitted`](crate::app::state::shared::SharedViewState::fitted) at the last frame.
    fitted: u32,
    wheel: ByteWheel,
    /// The y at which a drag along the addresses began.
    choosing: Option<f32>,
    /// The place under the pointer, and since when the pointer has been still.
    hovering: Rest<(u32, u64)>,
    /// The block or hole under the pointer. The state of its event is computed off the UI thread.
    under: Derived<(u32, u64), Option<Under>>,
    said_hover: bool,
    menu: Option<MenuTarget>,
    /// The lifetime of the selected segment, keyed by address and cursor.
    segment: Derived<(u64, u32), Option<SegmentLife>>,
}

/// A place in the view: the column of the picture and, in the map, the share of the height and the offset on the address axis.
struct Place {
    event: u32,
    column: usize,
    share: Option<f64>,
    offset: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Under {
    item: Item,
    address: u64,
    /// Size of the whole block in bytes.
    size: u64,
}

/// The items at the cursor that are known only by an address.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    segment: Option<SegmentLife>,
    /// Address and bytes.
    hole: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct MenuTarget {
    event: u32,
    address: u64,
    item: Option<Item>,
}

impl View for HeatmapView {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        if cx.data.device().events.is_empty() { String::new() } else { "same time range".to_owned() }
    }

    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if ui.available_width() > 220.0
            && let Some(mode) = button::select(ui, "shade", &self.mode, &Mode::ALL, |mode| mode.name())
        {
            self.mode = mode;
        }
        let (names, choices): (Vec<String>, Vec<Option<Servers>>) = choices(cx.data.device()).into_iter().unzip();
        let mut at = choices.iter().position(|c| *c == self.only).unwrap_or(0);
        if ui.available_width() > 260.0 && button::selector(ui, "segments", &mut at, &names) {
            // A range of addresses means nothing on the axis of other segments.
            (self.only, self.addresses) = (choices[at], None);
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let pane_rect = ui.max_rect();
        let device = cx.data.device();
        // Showing the whole recording also resets the zoom of addresses.
        if std::mem::replace(&mut self.fitted, cx.shared.fitted) != cx.shared.fitted {
            self.addresses = None;
        }
        if device.events.is_empty() && !device.bands.is_empty() {
            let sentence = "This memory timeline holds sums by category, not where memory lies. A snapshot does:";
            return pane::empty_state(ui, sentence, Some(&cx.snapshot_line()));
        }
        if device.events.is_empty() {
            return cx.without_history(
                ui,
                "This recording has no events, only the state at its end. Record the history to see fragmentation over time:",
            );
        }
        // Size classes are labelled with units and need more room.
        let labels = if self.mode == Mode::HoleSizes { 62.0 } else { 48.0 };
        let mut areas = layout::areas(pane_rect, labels, 1);
        if let (Some(legend), Some(latest)) = (areas.legend, self.picture.latest()) {
            areas = layout::areas(pane_rect, labels, paint::legend_rows(ui.painter(), latest, legend.width()));
        }
        let response = told_at(ui, areas.canvas(), "heatmap canvas", Sense::click_and_drag(), Role::Canvas, || {
            format!("Fragmentation, {}", self.mode.name())
        });
        let Some(picture) = self.picture(ui, cx, &areas) else {
            return pane::progress_line(ui, pane_rect, None);
        };
        if picture.is_empty() && picture.key.only.is_some() {
            return pane::empty_state(
                ui,
                "No segment for these requests was reserved in this part of the recording. Choose all segments above.",
                None,
            );
        }
        if picture.is_empty() {
            if cx.data.recording.source.format == vramscope_core::model::Format::RmmLog {
                let sentence = format!("{} So what was free inside them is unknown.", why_no_segments(cx.data.device()));
                return pane::empty_state(ui, &sentence, None);
            }
            if cx.data.device().id.kind == vramscope_core::model::DeviceKind::Cpu {
                return pane::empty_state(ui, why_no_segments(cx.data.device()), None);
            }
            let sentence = "This part of the recording has no segment of this device. A snapshot has them all:";
            return pane::empty_state(
                ui,
                sentence,
                Some(&cx.words().say("torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")")),
            );
        }
        let painter = ui.painter_at(pane_rect);
        let (low, high) = match &picture.map {
            Map::Addresses(map) => match self.addresses {
                Some((from, to)) => map.range_of(from, to),
                None => (0, map.total),
            },
            Map::Sizes(_) => (0, 1),
        };
        let y = Scale::horizontal(low as f64, high as f64, areas.map.y_range());
        let canvas = paint::Canvas {
            painter: &painter,
            tokens: cx.tokens,
            data: cx.data,
            picture: &picture,
            areas,
            axis: cx.shared.axis,
            x: Scale::horizontal(cx.shared.from, cx.shared.to, areas.x),
            y,
        };
        canvas.back();
        if picture.key.axis == cx.shared.axis {
            let at = |v: f64| canvas.x.at(v);
            let rows = match &picture.map {
                Map::Addresses(map) => (y.at(map.shown.0 as f64), y.at(map.shown.1 as f64)),
                Map::Sizes(_) => (areas.map.top(), areas.map.bottom()),
            };
            let rect = Rect::from_min_max(pos2(at(picture.key.from), rows.0), pos2(at(picture.key.to), rows.1));
            self.texture.paint(&painter.with_clip_rect(areas.map), rect);
        }
        canvas.marks();
        canvas.labels();
        let mut terms = canvas.strip(cx.shared.cursor);
        terms.extend(canvas.legend());
        let places = self.places(cx);
        canvas.overlays(cx.shared, &places);
        // A glossary term has its own tooltip, which replaces that of the place.
        let word = terms.iter().find(|(rect, _)| ui.rect_contains_pointer(*rect)).copied();
        self.gestures(ui, cx, &canvas, &response, word.is_some());
        if let Some((rect, term)) = word {
            term::explain_at(ui, rect, term);
        }
        self.address_axis(ui, &canvas);
        self.whole_ui(ui, &canvas);
        self.menu_ui(cx, &canvas, &response);
    }
}

/// Which segments can be shown alone: by size class, and by stream when there are several.
fn choices(device: &DeviceRecording) -> Vec<(String, Option<Servers>)> {
    let all = [(SizeClass::Large, "large"), (SizeClass::Small, "small")];
    let mut choices = vec![("all".to_owned(), None)];
    for (class, name) in all {
        choices.push((format!("{name} requests"), Some(Servers { class, stream: None, pool: None })));
    }
    // More streams than this would make the menu too long.
    let streams = device.streams.iter().take(if device.streams.len() > 1 { 8 } else { 0 });
    for (i, &handle) in streams.enumerate() {
        for (class, name) in all {
            let servers = Servers { class, stream: Some(StreamId(i as u16)), pool: None };
            choices.push((format!("{name}, {}", stream_name(handle, i)), Some(servers)));
        }
    }
    choices
}

impl HeatmapView {
    /// The newest picture. An older one is stretched while it is computed.
    fn picture(&mut self, ui: &Ui, cx: &ViewContext<'_>, areas: &Areas) -> Option<Arc<Picture>> {
        let [width, height] = PixelTexture::size_for(ui.ctx(), areas.map);
        let at_cursor = cx.data.ooms.binary_search(&cx.shared.cursor).is_ok();
        let key = Key {
            axis: cx.shared.axis,
            from: cx.shared.from,
            to: cx.shared.to,
            size: [width.clamp(1, LARGEST_SIDE), height.clamp(1, LARGEST_SIDE)],
            mode: self.mode,
            only: self.only,
            dark: cx.tokens.dark,
            oom: if at_cursor { Some(cx.shared.cursor) } else { cx.data.last_oom() },
            addresses: self.addresses,
            focus: (Focus::of(cx.shared, cx.matching), Identity::of(cx.colours)),
        };
        let (data, colours) = (Arc::clone(cx.data), Arc::clone(cx.colours));
        let wanted = key.clone();
        let job = move |p: &_| Picture::compute(&data, &colours, wanted, p);
        let picture = self.picture.get(cx.jobs, "fragmentation", &key, job).value?;
        self.texture.update(ui.ctx(), "fragmentation", &picture, picture.key.size, |picture| picture.pixels.clone());
        Some(picture)
    }

    /// The segment or hole that is selected or hovered, at the cursor.
    fn places(&mut self, cx: &ViewContext<'_>) -> Places {
        let mut places = Places::default();
        // Only one segment is looked up, because two would evict each other from the single cache entry.
        let mut segment = None;
        for item in [cx.shared.hovered, cx.shared.selected()].into_iter().flatten() {
            match item {
                Item::Segment(address) => segment = Some(address),
                Item::Hole(address) => {
                    let block = cx.state.and_then(|s| s.blocks.get(s.block_at(address)?));
                    places.hole = block.filter(|b| !b.lifetime.is_some()).map(|b| (b.address, b.size));
                }
                _ => {}
            }
        }
        if let Some(address) = segment {
            let data = Arc::clone(cx.data);
            let key = (address, cx.shared.cursor);
            let job = move |_: &_| Some(data.tables.states.segment_life(data.device(), key.0, key.1));
            places.segment = self.segment.get(cx.jobs, "segment life", &key, job).value.and_then(|life| *life);
        }
        places
    }

    /// While addresses are zoomed, a button that shows all of them again.
    fn whole_ui(&mut self, ui: &mut Ui, canvas: &paint::Canvas<'_>) {
        if self.addresses.is_some() && push_over(ui, canvas.areas.map, "Show all addresses") {
            self.addresses = None;
        }
    }
}
