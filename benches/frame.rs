//! The cost of a frame on the UI thread: the window at 1600 x 1000, panned, zoomed, scrubbed and pointed at by a script, through
//! `Context::run_ui` and `tessellate`, without a GPU. Prints the median and the 99th percentile of each part.
//!
//! `VRAMSCOPE_BENCH` names the recording. Work off the UI thread runs on its own threads, as in the app. Other programs on the
//! machine add to the wall-clock time, so the thread's processor time is printed too.

// A benchmark that cannot start may panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use egui::{Context, Event, PointerButton, Pos2, RawInput, Rect, pos2, vec2};
use vramscope::app::App;
use vramscope::app::data::colours::Colours;
use vramscope::app::data::device::DeviceData;
use vramscope::app::documents::document::Content;
use vramscope::app::jobs::Jobs;
use vramscope::app::settings::Settings;
use vramscope::app::state::{Action, Actions, ColourBy, SharedViewState, ViewKind};
use vramscope::app::theme::{self, Tokens};
use vramscope::app::views::ViewContext;

const SIZE: [f32; 2] = [1600.0, 1000.0];
const FRAMES: usize = 240;
/// Pause between frames for 60 frames per second, so that threads get their time as in the app.
const PAUSE: Duration = Duration::from_millis(16);

fn main() {
    let Some(path) = std::env::var_os("VRAMSCOPE_BENCH") else {
        println!("skipped: set VRAMSCOPE_BENCH to a recording");
        return;
    };
    let ctx = Context::default();
    let mut app = App::new(&ctx, Settings::default(), Jobs::new(ctx.clone()));
    let started = Instant::now();
    app.open_paths([path.into()]);
    let mut first_curve = None;
    let mut loading = Times::default();
    while app.active_document().is_none_or(|d| d.view().is_none()) {
        loading.add(&ctx, Vec::new(), |ui| {
            app.logic(ui.ctx());
            app.draw(ui);
        });
        // The loading page draws curves of two or more points.
        if first_curve.is_none()
            && let Some(Content::Loading(l)) = app.active_document().map(|d| &d.content)
            && l.preview.len() >= 2
        {
            first_curve = Some(started.elapsed());
        }
        assert!(started.elapsed() < Duration::from_secs(600), "the recording does not load");
    }
    match first_curve {
        Some(after) => println!("first curves after {after:.0?}"),
        None => println!("the views came before the first curves of the loading page"),
    }
    loading.print("loading");
    let data = app.active_document().and_then(|d| d.view()).map(|v| Arc::clone(&v.data)).expect("a loaded device");
    let events = data.device().events.len();
    println!("{events} events, {} allocations, ready after {:.1?}", data.tables.lifetimes.len(), started.elapsed());

    println!("the whole window:");
    for (name, script) in SCRIPTS {
        let mut times = Times::default();
        for i in 0..FRAMES {
            let actions = app.actions().clone();
            let input = script(i as f64 / FRAMES as f64, events as f64, &actions);
            times.add(&ctx, input, |ui| {
                app.logic(ui.ctx());
                app.draw(ui);
            });
        }
        times.print(name);
        settle(&ctx, &mut app);
    }
    println!("the timeline alone:");
    timeline_alone(&data);
    println!("until a new picture of the strata is there:");
    latency(&ctx, &mut app, events as f64);
    println!("each view over the whole window, all gestures:");
    for view in ViewKind::all().filter(|v| *v != ViewKind::Live) {
        alone(&ctx, &mut app, view, events as f64);
    }
}

/// One view at a time over the whole window: first the finished picture, then every gesture.
fn alone(ctx: &Context, app: &mut App, view: ViewKind, events: f64) {
    app.show_only(view);
    let since = Instant::now();
    settle(ctx, app);
    let there = since.elapsed();
    let mut times = Times::default();
    for (_, script) in SCRIPTS {
        for i in 0..FRAMES / 3 {
            let actions = app.actions().clone();
            let input = script(i as f64 / (FRAMES / 3) as f64, events, &actions);
            times.add(ctx, input, |ui| {
                app.logic(ui.ctx());
                app.draw(ui);
            });
        }
        settle(ctx, app);
    }
    times.print(&format!("{:<12} (all of it there after {there:5.1?})", view.name()));
}

/// Shows everything and waits until all requested values are computed.
fn settle(ctx: &Context, app: &mut App) {
    app.actions().send(Action::SetWindow(0.0, f64::MAX / 4.0));
    draw_until_idle(ctx, app, 4, PAUSE);
}

/// Draws until so many frames in a row had nothing left to compute.
fn draw_until_idle(ctx: &Context, app: &mut App, frames: u32, pause: Duration) {
    let mut calm = 0;
    while calm < frames {
        frame(ctx, Vec::new(), |ui| {
            app.logic(ui.ctx());
            app.draw(ui);
        });
        std::thread::sleep(pause);
        calm = if app.is_idle() { calm + 1 } else { 0 };
    }
}

/// How long the old picture stays after a jump to another window.
fn latency(ctx: &Context, app: &mut App, events: f64) {
    for (name, width) in [("everything", 1.0), ("a tenth", 0.1), ("a thousandth", 0.001)] {
        let mut took = Vec::new();
        for i in 0..6 {
            let from = (events * (1.0 - width) * f64::from(i) / 6.0).floor();
            app.actions().send(Action::SetWindow(from, from + events * width - f64::from(i)));
            let since = Instant::now();
            draw_until_idle(ctx, app, 3, Duration::from_millis(1));
            took.push(since.elapsed().as_secs_f64() * 1e3);
        }
        took.sort_by(f64::total_cmp);
        println!("  {name:<14} median {:5.0} ms, longest {:5.0} ms", took[took.len() / 2], took[took.len() - 1]);
    }
}

type Script = fn(f64, f64, &Actions) -> Vec<Event>;

/// Each script gets its progress (0 to 1) and the number of events, sends actions, and returns pointer events.
const SCRIPTS: &[(&str, Script)] = &[
    ("still", |_, _, _| Vec::new()),
    ("pan", |t, n, actions| {
        let from = t * n * 0.75;
        actions.send(Action::SetWindow(from, from + n * 0.2));
        Vec::new()
    }),
    ("zoom", |t, n, actions| {
        let half = n / 2.0 * (-t * 12.0).exp();
        actions.send(Action::SetWindow(n * 0.6 - half * 1.2, n * 0.6 + half * 0.8));
        Vec::new()
    }),
    ("scrub", |t, n, actions| {
        actions.send(Action::SetCursor((t * n) as u32));
        Vec::new()
    }),
    ("point", |t, _, _| vec![Event::PointerMoved(pos2(340.0 + 900.0 * t as f32, 300.0 + 120.0 * (t * 40.0).sin() as f32))]),
    ("drag", |t, _, _| {
        let at = |t: f64| pos2(900.0 - 500.0 * t as f32, 400.0);
        let button = |pos: Pos2, pressed| Event::PointerButton {
            pos,
            button: PointerButton::Primary,
            pressed,
            modifiers: Default::default(),
        };
        let mut events = vec![Event::PointerMoved(at(t))];
        if t == 0.0 {
            events.push(button(at(t), true));
        }
        if t > 1.0 - 1.5 / FRAMES as f64 {
            events.push(button(at(t), false));
            events.push(Event::PointerGone);
        }
        events
    }),
];

/// The view alone, at its usual size in the Overview workspace.
fn timeline_alone(data: &Arc<DeviceData>) {
    let ctx = Context::default();
    theme::install(&ctx);
    let jobs = Jobs::new(ctx.clone());
    let comparing = vramscope::app::data::compare::Comparing::default();
    let (actions, inbox) = Actions::channel();
    let mut link = SharedViewState::new(data.device());
    let colours = Arc::new(Colours::build(data, ColourBy::Stack));
    let mut view = (ViewKind::Timeline.info().create)();
    let events = data.device().events.len();
    let state = Arc::new(data.tables.states.at(data.device(), &data.tables.lifetimes, link.cursor));
    for (name, script) in SCRIPTS {
        let mut times = Times::default();
        for i in 0..FRAMES {
            let input = script(i as f64 / FRAMES as f64, events as f64, &actions);
            for action in inbox.try_iter() {
                match action {
                    Action::SetWindow(from, to) => (link.from, link.to) = (from.max(0.0), to.min(events as f64)),
                    Action::SetCursor(e) => link.cursor = e,
                    Action::HoverEvent(e) => link.hover_event = e,
                    Action::Hover(item) => link.hovered = item,
                    _ => {}
                }
            }
            times.add(&ctx, input, |ui| {
                let cx = ViewContext {
                    data,
                    shared: &link,
                    state: Some(&state),
                    findings: None,
                    roles: None,
                    matching: None,
                    colours: &colours,
                    comparing: &comparing,
                    tokens: Tokens::of(ui.ctx()),
                    actions: &actions,
                    jobs: &jobs,
                    source_folders: &[],
                };
                let area = Rect::from_min_size(pos2(280.0, 92.0), vec2(998.0, 442.0));
                let mut pane = ui.new_child(egui::UiBuilder::new().max_rect(area));
                view.ui(&mut pane, &cx);
            });
        }
        times.print(name);
    }
}

fn frame(ctx: &Context, events: Vec<Event>, mut draw: impl FnMut(&mut egui::Ui)) -> usize {
    let input = RawInput {
        screen_rect: Some(Rect::from_min_size(Pos2::ZERO, SIZE.into())),
        focused: true,
        events,
        ..RawInput::default()
    };
    let mut output = ctx.run_ui(input, |ui| draw(ui));
    output.textures_delta.clear();
    ctx.tessellate(output.shapes, output.pixels_per_point).len()
}

/// Frame times in milliseconds.
#[derive(Default)]
struct Times {
    wall: Vec<f64>,
    thread: Vec<f64>,
}

impl Times {
    fn add(&mut self, ctx: &Context, events: Vec<Event>, draw: impl FnMut(&mut egui::Ui)) {
        let (wall, thread) = (Instant::now(), thread_time());
        std::hint::black_box(frame(ctx, events, draw));
        self.wall.push(wall.elapsed().as_secs_f64() * 1e3);
        if let (Some(before), Some(after)) = (thread, thread_time()) {
            self.thread.push((after.saturating_sub(before)) as f64 / 1e6);
        }
        std::thread::sleep(PAUSE);
    }

    fn print(mut self, name: &str) {
        self.wall.sort_by(f64::total_cmp);
        let at = |share: f64| self.wall[((self.wall.len() as f64 * share) as usize).min(self.wall.len() - 1)];
        // The system counts in ticks, so only the mean of many frames is meaningful.
        let mean = self.thread.iter().sum::<f64>() / self.thread.len().max(1) as f64;
        println!("  {name:<8} median {:6.2} ms   p99 {:6.2} ms   processor, mean {mean:5.2} ms", at(0.5), at(0.99));
    }
}

/// Processor time of this thread in nanoseconds, if the system reports it.
fn thread_time() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
}
