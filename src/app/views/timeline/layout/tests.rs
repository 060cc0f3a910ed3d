use super::*;
use egui::vec2;

fn pane(width: f32, height: f32) -> Rect {
    Rect::from_min_size(egui::pos2(10.0, 20.0), vec2(width, height))
}

const ALL: Contents = Contents {
    folded: [false; TRACKS],
    two_line_axis: true,
    step_levels: 2,
    phases: false,
    device_calls: true,
    curves_height: None,
    op_lines: 0,
    ops_height: None,
    bands: false,
    bands_lead: false,
    bands_opened: false,
    card: false,
};

#[test]
fn a_memory_timeline_gives_its_bands_room() {
    let with = Contents { step_levels: 0, device_calls: false, bands: true, ..ALL };
    let leading = |height: f32| {
        let mut contents: Contents = with;
        contents.bands_lead = true;
        tracks(pane(998.0, height), contents)
    };
    let (beside, lead) = (tracks(pane(998.0, 452.0), with), leading(452.0));
    assert!(lead.open(Track::Bands).unwrap().height() > 1.8 * beside.open(Track::Bands).unwrap().height(), "{lead:?}");
    assert!(
        lead.open(Track::Bands).unwrap().height() > lead.open(Track::Curves).unwrap().height()
            && lead.strata.height() >= STRATA_LEAST
    );
    // A memory timeline alone in a window of 1280 by 800.
    for height in [340.0, 300.0, 260.0] {
        let t = leading(height);
        assert!(t.open(Track::Bands).is_some_and(|b| b.height() >= BANDS_LEAST) && t.legend.is_some(), "{height}: {t:?}");
        assert!(t.strata.height() >= STRATA_LEAST - 0.1, "{height}: {t:?}");
    }
    assert!(leading(170.0).open(Track::Bands).is_none());
}

/// At any height, folded categories open when clicked, and fold again.
#[test]
fn a_click_on_categories_never_makes_them_vanish() {
    const BANDS: usize = Track::Bands as usize;
    for op_lines in [0, 7] {
        for height in (230..700).step_by(10).map(|h| h as f32) {
            let mut contents = Contents { bands: true, op_lines, ..ALL };
            contents.folded[BANDS] = true;
            let before = tracks(pane(998.0, height), contents);
            if before.folded[BANDS].is_none() {
                continue;
            }
            (contents.folded[BANDS], contents.bands_opened) = (false, true);
            let opened = tracks(pane(998.0, height), contents);
            assert!(
                opened.open(Track::Bands).is_some_and(|b| b.height() >= BANDS_LEAST),
                "{op_lines} lines, {height}: {opened:?}"
            );
            assert!(opened.legend.is_some() && opened.axis.is_some(), "{op_lines} lines, {height}: {opened:?}");
        }
    }
    // Open by default but without room: the name stays, to open them.
    let narrow = tracks(pane(998.0, 380.0), Contents { bands: true, ..ALL });
    assert!(narrow.open(Track::Bands).is_none() && narrow.folded[BANDS].is_some(), "{narrow:?}");
}

#[test]
fn operators_take_what_is_left_and_go_before_the_rest() {
    let with = Contents { op_lines: 7, bands: true, ..ALL };
    let tall = tracks(pane(998.0, 900.0), with);
    assert_eq!(tall.op_lines(), 7);
    assert!(
        tall.open(Track::Bands)
            .is_some_and(|b| b.top() > tall.strata.bottom() && b.bottom() < tall.open(Track::Steps).unwrap().top())
    );
    assert!(tall.open(Track::Ops).unwrap().top() > tall.open(Track::Device).unwrap().bottom());
    let usual = tracks(pane(998.0, 452.0), with);
    assert!((2..7).contains(&usual.op_lines()) && usual.open(Track::Bands).is_none(), "{usual:?}");
    assert!(usual.strata.height() >= STRATA_LEAST);
    // The user's height is respected while the strata keep their minimum.
    let dragged = |height: f32| {
        let mut contents: Contents = with;
        contents.ops_height = Some(height);
        tracks(pane(998.0, 452.0), contents)
    };
    assert_eq!(dragged(3.0 * OP_LINE + OP_WORDS).op_lines(), 3);
    assert_eq!((dragged(1.0).op_lines(), usual.op_lines()), (2, 5));
    assert!(dragged(4000.0).strata.height() >= STRATA_LEAST);
    // A window of 1280 by 800 still has operators.
    assert!(tracks(pane(790.0, 344.0), Contents { step_levels: 3, ..with }).op_lines() >= OP_LINES_LEAST);
    let low = tracks(pane(998.0, 290.0), with);
    assert!(low.open(Track::Ops).is_none() && low.open(Track::Overview).is_some(), "{low:?}");
    let mut folded = with;
    folded.folded[Track::Ops as usize] = true;
    assert_eq!(tracks(pane(998.0, 900.0), folded).folded[Track::Ops as usize].map(|r| r.height()), Some(FOLDED));
}

#[test]
fn phases_stand_under_the_steps_and_come_back_before_the_device_calls() {
    let with = Contents { phases: true, step_levels: 1, ..ALL };
    let usual = tracks(pane(998.0, 442.0), with);
    let phases = usual.open(Track::Phases).unwrap();
    assert!(
        phases.top() > usual.open(Track::Steps).unwrap().bottom() && phases.bottom() < usual.open(Track::Device).unwrap().top()
    );
    assert!(usual.strata.height() >= STRATA_COMFORT - 0.1, "{usual:?}");
    for height in (60..460).step_by(2) {
        let t = tracks(pane(562.0, height as f32), with);
        assert!(t.open(Track::Phases).is_none() || t.open(Track::Steps).is_some(), "{height}: {t:?}");
        assert!(t.open(Track::Device).is_none() || t.open(Track::Phases).is_some(), "{height}: {t:?}");
        assert!(t.strata.height() >= STRATA_LEAST.min(height as f32 * 0.4) - 0.1, "{height}: {t:?}");
    }
    // The timelines in windows of 1280 by 720 and of 1024 by 700.
    for (width, height) in [(792.0, 299.0), (586.0, 289.0)] {
        let low = tracks(pane(width, height), Contents { step_levels: 2, ..with });
        assert!(
            low.open(Track::Phases).is_some()
                && low.open(Track::Curves).is_some()
                && low.open(Track::Overview).is_some()
                && low.legend.is_some(),
            "{low:?}"
        );
        assert!(low.strata.height() >= STRATA_BESIDE_PHASES - 0.1, "{low:?}");
    }
    let ops = tracks(pane(790.0, 344.0), Contents { op_lines: 7, ..with });
    assert!(ops.open(Track::Phases).is_none() && ops.op_lines() >= OP_LINES_LEAST, "operators tell more: {ops:?}");
    let mut folded = with;
    folded.folded[Track::Phases as usize] = true;
    assert_eq!(tracks(pane(998.0, 442.0), folded).folded[Track::Phases as usize].map(|r| r.height()), Some(FOLDED));
}

#[test]
fn the_whole_card_stands_under_the_strata_and_goes_before_the_curves() {
    let with = Contents { card: true, ..ALL };
    let usual = tracks(pane(998.0, 442.0), with);
    let card = usual.open(Track::Card).unwrap();
    assert!(
        card.top() > usual.strata.bottom() && card.bottom() < usual.open(Track::Steps).unwrap().top() && card.height() >= 48.0
    );
    let low = tracks(pane(998.0, 330.0), with);
    assert!(low.open(Track::Card).is_none() && low.open(Track::Curves).is_some(), "{low:?}");
}

/// The lanes of a pane from the top down; `None` for a lane that found no room.
fn from_top(t: &Tracks) -> [Option<Rect>; 7] {
    let [overview, curves, steps, device] =
        [Track::Overview, Track::Curves, Track::Steps, Track::Device].map(|track| t.open(track));
    [overview, t.axis, curves, Some(t.strata), steps, device, t.legend]
}

#[test]
fn a_folded_track_leaves_its_name_and_gives_its_room_to_the_strata() {
    let open = tracks(pane(998.0, 442.0), ALL);
    let folded = tracks(pane(998.0, 442.0), Contents { folded: [true, true, true, false, false, false, false, false], ..ALL });
    assert_eq!((folded.open(Track::Overview), folded.open(Track::Curves), folded.open(Track::Steps)), (None, None, None));
    assert_eq!(
        folded.folded.map(|r| r.map(|r| r.height())),
        [Some(FOLDED), Some(FOLDED), Some(FOLDED), None, None, None, None, None]
    );
    let gained = (34.0 - 16.0) + (96.0 - 16.0) + (32.0 - 16.0);
    assert_eq!(folded.strata.height(), open.strata.height() + gained);
}

#[test]
fn a_full_pane_has_every_track_in_the_mockup_s_order() {
    let t = tracks(pane(998.0, 442.0), ALL);
    assert_eq!((t.x.min, t.x.max), (110.0, 990.0));
    let mut last = 20.0;
    for rect in from_top(&t) {
        let rect = rect.expect("all tracks fit");
        assert!(rect.top() >= last, "{rect:?} overlaps the track above");
        last = rect.bottom();
    }
    assert_eq!(last, 462.0);
    assert_eq!(t.open(Track::Overview).map(|o| (o.top(), o.height())), Some((26.0, 34.0)));
    assert_eq!(t.open(Track::Curves).map(|c| c.height()), Some(96.0));
}

#[test]
fn a_pane_beside_the_events_leaves_room_for_blocks() {
    for height in [290.0, 310.0, 350.0] {
        let t = tracks(pane(998.0, height), ALL);
        assert!(t.strata.height() >= STRATA_COMFORT - 0.1 && t.open(Track::Curves).is_some(), "{height}: {t:?}");
    }
}

#[test]
fn what_has_no_room_is_told_and_what_is_folded_or_not_there_is_not() {
    assert_eq!(tracks(pane(998.0, 442.0), ALL).hidden(&ALL), []);
    let low = tracks(pane(998.0, 250.0), ALL);
    let hidden = low.hidden(&ALL);
    assert!(hidden.contains(&Track::Device) && !hidden.contains(&Track::Curves), "{hidden:?}");
    let without = Contents { device_calls: false, ..ALL };
    assert!(!tracks(pane(998.0, 250.0), without).hidden(&without).contains(&Track::Device));
    let folded = Contents { folded: [true; TRACKS], ..ALL };
    assert_eq!(tracks(pane(998.0, 442.0), folded).hidden(&folded), []);
}

/// In a small window users need the overview most, because little of the recording is visible.
#[test]
fn the_overview_is_the_last_lane_to_go() {
    for levels in [0, 1, 3] {
        for height in (60..460).step_by(2) {
            let t = tracks(pane(562.0, height as f32), Contents { step_levels: levels, ..ALL });
            let is_any = [t.open(Track::Curves), t.open(Track::Steps), t.open(Track::Device)].iter().any(Option::is_some);
            assert!(!is_any || t.open(Track::Overview).is_some(), "{levels} levels, {height}: {t:?}");
            assert!(from_top(&t).into_iter().flatten().is_sorted_by(|a, b| a.bottom() <= b.top()), "{t:?}");
        }
    }
    // The timeline in a window of 1000 by 700.
    let t = tracks(pane(562.0, 290.0), ALL);
    assert!(
        t.open(Track::Overview).is_some_and(|o| o.height() >= OVERVIEW_LOW)
            && t.open(Track::Curves).is_some()
            && t.legend.is_some(),
        "{t:?}"
    );
    assert!(t.strata.height() >= STRATA_COMFORT - 0.1, "{t:?}");
}

#[test]
fn the_legend_outlives_the_lanes() {
    for height in [300.0, 250.0, 210.0, 180.0] {
        let t = tracks(pane(700.0, height), ALL);
        assert!(t.legend.is_some(), "{height}: {t:?}");
    }
    let t = tracks(pane(700.0, 250.0), ALL);
    assert!(t.open(Track::Curves).is_some_and(|c| (CURVES_LEAST..CURVES).contains(&c.height())), "{t:?}");
}

#[test]
fn a_low_pane_keeps_the_strata_and_drops_the_rest_one_by_one() {
    let mut before = usize::MAX;
    for height in [600.0, 400.0, 340.0, 300.0, 250.0, 200.0, 150.0, 100.0, 40.0] {
        let t = tracks(pane(700.0, height), ALL);
        let shown = from_top(&t).into_iter().flatten().count();
        assert!(shown <= before);
        before = shown;
        assert!(t.strata.height() >= 8.0);
        if height >= 80.0 {
            assert!(t.strata.height() >= STRATA_LEAST.min(height), "{height}: {}", t.strata.height());
            assert!(t.strata.bottom() <= 20.0 + height + 0.1);
        }
    }
    assert_eq!(before, 1, "only the strata are left");
    assert!(tracks(pane(30.0, 30.0), ALL).x.span() >= 1.0);
}

fn cells(values: &[(u64, u64)]) -> Vec<Cell> {
    values.iter().map(|&(min, max)| Cell { min, max, last: max, count: 1 }).collect()
}

#[test]
fn the_curves_fit_the_window_and_take_in_a_limit_that_is_near() {
    let reserved = cells(&[(1000, 1080)]);
    let active = cells(&[(500, 900)]);
    let (low, high) = curves_range(&reserved, &active, &active, Some(1086));
    assert!(low > 400.0 && low < 500.0 && high > 1086.0 && high < 1200.0, "{low} {high}");
    let (_, high) = curves_range(&reserved, &active, &active, Some(1_000_000));
    assert!(high < 1200.0, "a limit far above does not flatten the curves");
    assert_eq!(curves_range(&reserved, &cells(&[(100, 900)]), &active, None).0, 0.0);
    let (low, high) = curves_range(&[], &[], &[], None);
    assert!(low == 0.0 && high > 0.0);
}

#[test]
fn the_strata_reach_above_what_is_reserved_and_hold_still() {
    for top in [600u64, 1 << 20, (1 << 30) + 12_345, 80 << 30] {
        let at = strata_top(&cells(&[(0, top)]), &[], None);
        assert!(at >= top as f64 * 1.02 && at <= top as f64 * 1.09, "{top}: {at}");
    }
    let a = strata_top(&cells(&[(0, 1_000_000)]), &[], None);
    assert_eq!(a, strata_top(&cells(&[(0, 1_000_900)]), &[], None));
    assert!(strata_top(&[], &[], None) > 0.0);
}

#[test]
fn labels_stand_where_there_is_room() {
    let tops = vec![10.0; 100];
    let bottoms: Vec<f32> = (0..100).map(|i| if i < 48 { 15.0 } else { 60.0 }).collect();
    assert_eq!(label_place(&tops, &bottoms, 0, 30, 20.0), Some((48, 35.0)));
    assert_eq!(label_place(&tops, &bottoms, 0, 60, 20.0), None);
    assert_eq!(label_place(&tops, &bottoms, 90, 30, 2.0), None);
    assert_eq!(label_place(&[], &[], 0, 30, 2.0), None);
}
