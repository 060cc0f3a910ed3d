//! Every widget in one picture per theme, and the behaviour of interactive widgets.

use std::sync::Arc;

use crate::hand::wheel;
use crate::pictures::{Pictures, builder};
use egui::{Align2, Color32, Rangef, Rect, Sense, Theme, Ui, pos2, vec2};
use egui_kittest::SnapshotOptions;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::theme::{self, Ramp, Tokens, Type};
use vramscope::app::widgets::{
    Bar, Batch, CodeWell, Column, Field, Gesture, Icon, Intent, KeyValue, LegendEntry, ListRow, PanZoom, PaneHeader, PixelColumn,
    PixelTexture, Push, Scale, Sort, Sparkline, Swatch, Table, Tip, UnitAt, Width, axis, button, chip, label, legend, mesh,
    paint_logo, pane, row,
};

const MIB: f64 = 1_048_576.0;

fn options() -> SnapshotOptions {
    SnapshotOptions::new().threshold(0.6).max_failed_pixels(10)
}

#[derive(Default)]
struct State {
    segment: usize,
    colour: usize,
    internals: bool,
    limit: String,
    filter: String,
    heat: Option<Arc<Vec<Color32>>>,
    texture: PixelTexture,
}

fn left(ui: &mut Ui, s: &mut State) {
    let t = Tokens::of(ui);
    PaneHeader::new("Findings").caption("5").show(ui, |ui| {
        button::selector(ui, "by", &mut s.colour, &["bytes", "time"]);
    });
    let response = ListRow::new("Out of memory: no hole fits").height(72.0).edge(t.red).fill(t.s2).show_painted(ui);
    let inner = response.rect.shrink2(vec2(16.0, 8.0));
    let title = Rect::from_min_size(inner.min, vec2(inner.width(), 16.0));
    label::text_in(ui.painter(), title, "Out of memory: no hole fits", Type::Title, t.red);
    label::text_in_right(ui.painter(), title, "133.65\u{a0}MiB", Type::Mono, t.text1);
    let mut below =
        ui.new_child(egui::UiBuilder::new().max_rect(Rect::from_min_max(pos2(inner.left(), inner.top() + 18.0), inner.max)));
    label::rich_paragraph(
        &mut below,
        "A request for *5.58 MiB* failed with *133.65 MiB* free inside reserved memory. The largest hole is 164 KiB too small.",
        Type::Body,
        t.text2,
        t.text1,
    );
    KeyValue::new("request", "5.58\u{a0}MiB").colour(t.red).show(ui);
    row::key_value(ui, "largest of 52 holes", "5.42\u{a0}MiB");
    KeyValue::new("one hole of 500 MiB", "27\u{a0}MiB").strong().colour(t.red).show(ui);
    ui.add_space(8.0);
    pane::padded(ui, |ui| {
        ui.horizontal(|ui| {
            Push::primary("Open autopsy").show(ui);
            Push::outlined("Go to event").show(ui);
        });
    });
    pane::section(ui, "Stack", "most recent first", false);
    for (i, (name, place)) in [("kv_decode", "workloads.py:71"), ("main", "workloads.py:184")].into_iter().enumerate() {
        ListRow::new(name).pad(16.0).selected(i == 1).show(ui, |ui| {
            ui.label(Type::Mono.text(i.to_string()).color(t.text3));
            ui.label(Type::MonoStrong.text(name).color(t.text1));
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| button::external_link(ui, place));
        });
        if i == 0 {
            pane::padded(ui, |ui| {
                CodeWell::new("req[0] = [torch.cat([k, k[:, :, -1:]], dim=2), values, and more]").number(71).show(ui)
            });
        }
    }
    pane::section(ui, "Words", "", false);
    pane::padded(ui, |ui| {
        row::definition(ui, "unattributed", "used, but in no process that NVML lists", 90.0);
        row::definition(ui, "cached", "reserved by PyTorch, free for its next tensor", 90.0);
    });
    pane::section(ui, "Try first", "", false);
    pane::padded(ui, |ui| {
        CodeWell::new("PYTORCH_CUDA_ALLOC_CONF=\n  max_split_size_mb:128").copy(true).show(ui);
        ui.add_space(8.0);
        CodeWell::new("mem._dump_snapshot(\"run.pickle\")   # last").python().copy(true).show(ui);
    });
}

fn curves(ui: &mut Ui, rect: Rect) {
    let t = Tokens::of(ui);
    let p = ui.painter_at(rect);
    let plot = Rect::from_min_max(pos2(rect.left() + 100.0, rect.top() + 26.0), pos2(rect.right() - 18.0, rect.bottom() - 8.0));
    let time = Scale::horizontal(98_000.0, 224_000.0, plot.x_range());
    let bytes = Scale::vertical(380.0 * MIB, 1120.0 * MIB, plot.y_range());
    let (tt, bt) =
        (axis::time_ticks(time.start, time.end, axis::most_across(plot.width())), axis::byte_ticks(bytes.start, bytes.end, 4));
    let mut b = Batch::new(&p).hatch_origin(rect.min);
    tt.grid_across(&mut b, t, &time, plot);
    bt.grid_down(&mut b, t, &bytes, plot);
    let n = (plot.width() / b.pixel()) as usize;
    let reserved = |i: usize| if i < n / 8 { 920.0 } else if i < n / 4 { 1000.0 } else { 1080.0 } * MIB;
    let allocated = |i: usize| (700.0 + 120.0 * (i as f64 / 60.0).sin() + 25.0 * ((i * 7919 % 97) as f64 / 97.0)) * MIB;
    let column = |v: f64| Some(PixelColumn::level(bytes.at(v)));
    let up: Vec<_> = (0..n).map(|i| column(reserved(i))).collect();
    let low: Vec<_> = (0..n).map(|i| column(allocated(i))).collect();
    b.fill_under(&low, plot.left(), plot.bottom(), Tokens::at(t.slot(0), 0.18));
    let free: Vec<_> = up.iter().zip(&low).filter_map(|(u, l)| Some((u.as_ref()?.top, l.as_ref()?.top))).collect();
    b.hatch_between(&free, plot.left(), t.hatch_large);
    b.curve(&low, plot.left(), 1.25, t.slot(0));
    b.curve(&up, plot.left(), 2.0, t.text1);
    b.dashed_hline(plot.x_range(), bytes.at(1086.0 * MIB), 1.0, mesh::DASH_LIMIT, t.red);
    b.vline(time.at(216_000.0), plot.y_range(), 1.0, t.text1);
    b.dashed_vline(time.at(180_000.0), plot.y_range(), 1.0, mesh::DASH_MARKER, t.text1);
    b.paint(&p);
    label::text(&p, pos2(rect.left() + 12.0, plot.top() + 8.0), Align2::LEFT_CENTER, "Curves", Type::Body, t.text1);
    label::text(&p, pos2(rect.left() + 12.0, plot.top() + 22.0), Align2::LEFT_CENTER, "MiB", Type::Caption, t.text3);
    let strip = Rect::from_min_max(pos2(plot.left(), rect.top() + 2.0), pos2(plot.right(), plot.top() - 2.0));
    tt.paint_across(&p, t, &time, strip, UnitAt::First);
    bt.paint_down(&p, t, &bytes, rect.left() + 92.0, plot.y_range(), UnitAt::Nowhere);
    chip::paint_chip(&p, t, pos2(time.at(216_000.0) - 6.0, plot.top() + 20.0), Align2::RIGHT_CENTER, "1,080\u{a0}MiB");
    chip::paint_flag(&p, t, pos2(time.at(216_000.0), plot.top()), "OOM");
    chip::paint_marker_label(&p, t, pos2(time.at(180_000.0), plot.top()), "A");
}

fn middle(ui: &mut Ui, s: &mut State) {
    let t = Tokens::of(ui);
    PaneHeader::new("Timeline")
        .caption("drag A and B, or press [ and ] to step from peak to peak")
        .help(|ui| _ = ui.label("what the colours mean"))
        .show(ui, |ui| {
            button::selector(ui, "colour", &mut s.colour, &["size class", "stack"]);
            button::selector_button(ui, "x", "time");
        });
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 150.0), Sense::hover());
    pane::progress_line(ui, rect, Some(0.4));
    curves(ui, rect);
    let size = |i, name: &str, n: &str| LegendEntry::new(Swatch::Fill(t.size[i]), name).value(n).mono();
    let entries = [
        size(0, "< 2.5", "24"),
        size(2, "3-3.5", "0").dimmed(true),
        size(5, "4.5-5", "24"),
        size(7, "≥ 5.5", "62"),
        LegendEntry::new(Swatch::Free, "free"),
        LegendEntry::new(Swatch::Grown(t.slot(2)), "grown"),
        LegendEntry::new(Swatch::Dashed(t.red), "cap"),
    ];
    legend::legend_row(ui, "Size, MiB", 100.0, &entries, "counts at the cursor");
    pane::rule(ui);
    ui.add_space(10.0);
    pane::padded(ui, |ui| {
        ui.horizontal(|ui| {
            button::segmented(ui, "Workspace", &mut s.segment, &["Overview", "OOM autopsy", "Flame and compare", "What-if"]);
            Push::plain("Copy").icon(Icon::Copy).show(ui);
            Push::plain("Stop").icon(Icon::Stop).small().show(ui);
            Push::primary("Replay").small().show(ui);
            Push::outlined("Replay").enabled(false).show(ui);
        });
        ui.add_space(8.0);
        ui.horizontal(|ui| {
            Field::new("Filter frames").icon(Icon::Search).width(160.0).show(ui, &mut s.filter);
            Field::new("limit").mono().invalid(true).width(90.0).show(ui, &mut s.limit);
            button::check(ui, "hide torch internals", &mut s.internals);
            chip::chip(ui, "allocated");
        });
        ui.add_space(10.0);
        ui.horizontal(|ui| {
            let icons = [
                Icon::ChevronDown,
                Icon::ChevronUp,
                Icon::ChevronLeft,
                Icon::ChevronRight,
                Icon::Close,
                Icon::Plus,
                Icon::Search,
                Icon::Copy,
                Icon::Sun,
                Icon::Moon,
                Icon::Help,
                Icon::Check,
                Icon::Cross,
                Icon::External,
                Icon::File,
                Icon::Pulse,
                Icon::Stop,
                Icon::Play,
                Icon::Warning,
                Icon::Folder,
                Icon::SortDown,
                Icon::SortUp,
            ];
            ui.spacing_mut().item_spacing.x = 2.0;
            for icon in icons {
                button::icon_button(ui, icon, &format!("{icon:?}"));
            }
            let (logo, _) = ui.allocate_exact_size(vec2(28.0, 20.0), Sense::hover());
            paint_logo(ui.painter(), logo.min, 28.0, t.accent, t.text2, t.text3);
        });
    });
    ui.add_space(10.0);
    PaneHeader::new("Blockers").caption("33 live blocks touch a hole").show(ui, |ui| {
        button::selector_button(ui, "group", "none");
    });
    let mib = |row: usize| 64 - row * 7 % 60;
    let columns: Vec<Column<'_, usize, ()>> = vec![
        Column::figure("#", 20.0, |c, row: &usize| c.figure((row + 1).to_string(), t.text3)),
        Column::text("block", Width::Exact(100.0), |c, row: &usize| {
            _ = c.text(format!("0x7ef99340{row:04}"), Type::Mono, t.text1)
        }),
        Column::text("between", Width::Share(1.0, 60.0), |c, &row: &usize| {
            c.bar(&Bar::new(100.0).part(mib(row) as f64, t.slot(0)).hatched(20.0).tick(90.0, t.red));
        }),
        Column::figure("strands", 80.0, |c, &row: &usize| c.figure(format!("{}\u{a0}MiB", mib(row)), t.text1)).sorts(()),
        Column::text("allocated at", Width::Exact(120.0), |c, _: &usize| _ = c.text("workloads.py:79", Type::Mono, t.accent)),
    ];
    let rect = Rect::from_min_size(ui.cursor().min, vec2(ui.available_width(), 124.0));
    let mut table = ui.new_child(egui::UiBuilder::new().max_rect(rect));
    let mut sort = Sort::new((), true);
    Table::sorted("blockers", columns, &mut sort).selected(Some(1)).show(&mut table, 1000, Some, |row, _| format!("block {row}"));
    ui.advance_cursor_after_rect(rect);
    ui.add_space(12.0);
    pictures(ui, s);
}

fn pictures(ui: &mut Ui, s: &mut State) {
    let t = Tokens::of(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 96.0), Sense::hover());
    let p = ui.painter_at(rect);
    let at = |x: f32, y: f32, w: f32, h: f32| Rect::from_min_size(rect.min + vec2(x, y), vec2(w, h));
    let mut b = Batch::new(&p).hatch_origin(rect.min);
    b.hole(at(16.0, 4.0, 60.0, 34.0), t.s2, t.hatch, t.line2);
    b.rect(at(78.0, 4.0, 50.0, 34.0), t.slot(0));
    b.selection(at(78.0, 4.0, 50.0, 34.0), t.text1, t.s1);
    b.hole(at(132.0, 4.0, 30.0, 34.0), Color32::TRANSPARENT, t.hatch, t.line2);
    for i in 0..8 {
        b.rect(at(16.0 + 22.0 * i as f32, 50.0, 20.0, 14.0), t.slot(i));
        b.rect(at(16.0 + 22.0 * i as f32, 68.0, 20.0, 14.0), t.size[i]);
    }
    b.paint(&p);
    legend::paint_ramp(&p, t, at(250.0, 72.0, 60.0, 8.0), Ramp::Heat.stops(t), ("empty", "full"));
    let spark = Sparkline {
        reserved: (0..96).map(|i| if i < 30 { 40.0 + i as f32 * 2.0 } else { 110.0 }).collect(),
        allocated: (0..96).map(|i| 30.0 + (i as f32 * 0.8).min(60.0) + (i % 7) as f32).collect(),
        oom: true,
    };
    spark.paint(&p, t, at(200.0, 4.0, 96.0, 32.0));
    let heat = Arc::clone(s.heat.get_or_insert_with(|| {
        Arc::new((0..64 * 24).map(|i| Ramp::Heat.at(t, (i * 2_654_435_761usize % 1000) as f32 / 1000.0)).collect())
    }));
    s.texture.update(ui, "gallery", &heat, [64, 24], Vec::clone);
    s.texture.paint(&p, at(340.0, 4.0, 128.0, 48.0));
    for (i, (kind, sample)) in [
        (Type::Display, "2.28 MiB"),
        (Type::Lead, "Lead: 610 MiB is free in 26 pieces"),
        (Type::Title, "Title: out of memory"),
        (Type::Mono, "0x7f1dca2b7000 -> == 0O1l"),
    ]
    .into_iter()
    .enumerate()
    {
        let y = [14.0, 38.0, 58.0, 76.0][i];
        label::text(&p, rect.min + vec2(490.0, y), Align2::LEFT_CENTER, sample, kind, t.text1);
    }
}

fn right(ui: &mut Ui) {
    let t = Tokens::of(ui);
    PaneHeader::new("Empty").show(ui, |ui| {
        button::icon_button(ui, Icon::ChevronRight, "Forward");
        button::icon_button(ui, Icon::ChevronLeft, "Back");
    });
    let rect = Rect::from_min_size(ui.cursor().min, vec2(ui.available_width(), 180.0));
    let mut child = ui.new_child(egui::UiBuilder::new().max_rect(rect));
    pane::empty_state(
        &mut child,
        "This recording has no call stacks. Record them with:",
        Some("torch.cuda.memory._record_memory_history(context=\"alloc\", stacks=\"python\")"),
    );
    ui.advance_cursor_after_rect(rect);
    pane::section(ui, "Facts", "", false);
    for (k, v) in [("requested", "2.13\u{a0}MiB"), ("segment", "17 of 54, offset 2.71\u{a0}MiB"), ("stack", "not recorded")] {
        let row = KeyValue::new(k, v).at(104.0);
        if v == "not recorded" { row.colour(t.text3) } else { row }.show(ui);
    }
    pane::section(ui, "Menu and tooltip", "", false);
    pane::padded(ui, |ui| {
        vramscope::app::widgets::tooltip::frame(ui).inner_margin(4.0).show(ui, |ui| {
            ui.set_max_width(180.0);
            button::menu_item(ui, "size class", Some(true), None, true);
            button::menu_item(ui, "call stack", Some(false), None, true);
            button::menu_item(ui, "role", Some(false), Some("Ctrl+C"), false);
        });
        ui.add_space(12.0);
        vramscope::app::widgets::tooltip::frame(ui).show(ui, |ui| {
            Tip::new("forward")
                .place("workloads.py:21")
                .swatch(t.slot(2))
                .code("a = torch.softmax((q @ k.transpose(-2, -1)) / scale")
                .row("at B, 24 blocks", "1,320.50\u{a0}MiB")
                .red_row("request", "5.58\u{a0}MiB")
                .note("Frames of the autograd thread have no Python stack.")
                .width(270.0)
                .ui(ui);
        });
    });
}

fn gallery(ui: &mut Ui, s: &mut State) {
    let t = Tokens::of(ui);
    let full = ui.content_rect();
    ui.set_clip_rect(full);
    ui.painter().rect_filled(full, 0, t.s1);
    let columns = [(0.0, 280.0), (281.0, 980.0), (981.0, 1300.0)];
    for (i, (a, b)) in columns.into_iter().enumerate() {
        let rect = Rect::from_min_max(pos2(a, 0.0), pos2(b, full.bottom()));
        let mut child = ui.new_child(egui::UiBuilder::new().id_salt(i).max_rect(rect));
        ui.painter().vline(b + 0.5, full.y_range(), egui::Stroke::new(1.0, t.s0));
        match i {
            0 => left(&mut child, s),
            1 => middle(&mut child, s),
            _ => right(&mut child),
        }
    }
}

#[test]
fn all_widgets_in_both_themes() {
    let mut pictures = Pictures::new();
    for theme in [Theme::Dark, Theme::Light] {
        let state = State { limit: "3,534 MiB?".into(), internals: true, ..State::default() };
        let mut h = builder()
            .with_size([1300.0, 760.0])
            .with_theme(theme)
            .with_options(options())
            .with_context_setup(theme::install)
            .build_ui_state(gallery, state);
        h.run();
        pictures.compare(if theme == Theme::Dark { "gallery_dark" } else { "gallery_light" }, h);
    }
}

#[test]
fn hatch_and_lines_hold_at_every_scale() {
    let mut pictures = Pictures::new();
    for (scale, name) in [(1.5, "scale_150"), (2.0, "scale_200")] {
        let mut h = builder()
            .with_size([300.0, 150.0])
            .with_pixels_per_point(scale)
            .with_options(options())
            .with_context_setup(theme::install)
            .build_ui(|ui| {
                let all = ui.content_rect();
                ui.painter().rect_filled(all, 0, Tokens::of(ui).s1);
                let mut child = ui.new_child(egui::UiBuilder::new().max_rect(all));
                child.set_clip_rect(all);
                curves(&mut child, all);
            });
        h.run();
        pictures.compare(name, h);
    }
}

#[test]
fn controls_answer_to_clicks_and_to_their_names() {
    let mut h = builder().with_size([1300.0, 760.0]).with_context_setup(theme::install).build_ui_state(gallery, State::default());
    h.run();
    h.get_by_label("What-if").click();
    h.run();
    assert_eq!(h.state().segment, 3);
    h.get_by_label("hide torch internals").click();
    h.run();
    assert!(h.state().internals);
    h.get_by_label("colour").click();
    h.run();
    h.get_all_by_label("stack").last().expect("the menu is open").click();
    h.run();
    assert_eq!(h.state().colour, 1);
    h.get_by_label("Filter frames").click();
    h.run();
    h.get_by_label("Filter frames").type_text("softmax");
    h.run();
    assert_eq!(h.state().filter, "softmax");
    h.get_by_label("Explain Timeline").click();
    h.run();
    assert!(h.query_by_label_contains("what the colours mean").is_some());
}

struct Plot {
    view: PanZoom,
    seen: Vec<Intent>,
}

fn plot(ui: &mut Ui, s: &mut Plot) {
    let (rect, response) = ui.allocate_exact_size(vec2(400.0, 200.0), Sense::click_and_drag());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Canvas, true, "plot"));
    let scale = s.view.horizontal(Rangef::new(rect.left(), rect.right()));
    if let Some(intent) = Gesture::read(&response).intent {
        s.view.apply(&intent, &scale, false);
        s.seen.push(intent);
    }
}

#[test]
fn a_plot_pans_zooms_selects_and_fits() {
    let state = Plot { view: PanZoom::new(0.0, 1000.0), seen: Vec::new() };
    let mut h = builder().with_size([420.0, 220.0]).with_context_setup(theme::install).build_ui_state(plot, state);
    h.run();
    let origin = h.get_by_label("plot").rect().min;
    let at = |x: f32| origin + vec2(x, 100.0);
    h.hover_at(at(100.0));
    h.run();
    wheel(&mut h, 400.0);
    let (a, b) = h.state().view.visible();
    assert!(b - a < 300.0, "{a} {b}");
    assert!(((250.0 - a) / (b - a) - 0.25).abs() < 0.01, "what is under the pointer stays: {a} {b}");
    h.drag_at(at(200.0));
    h.hover_at(at(300.0));
    h.run();
    h.drop_at(at(300.0));
    h.run();
    let (c, _) = h.state().view.visible();
    assert!(c < a, "dragging right goes back in time: {a} {c}");
    h.get_by_label("plot").click();
    h.run();
    assert!(matches!(h.state().seen.last(), Some(Intent::Click(_) | Intent::DoubleClick(_))));
}
