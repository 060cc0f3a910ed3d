//! The ranks page: pictures and pointer actions.

use std::path::Path;

use crate::hand::{press, press_key};
use crate::pictures::Pictures;
use crate::whole::{Whole, whole};
use egui::Theme;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::state::Action;

/// A folder of sample recordings as ranks of one job.
fn job(ranks: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("job")).expect("a folder");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
    for rank in 0..ranks {
        let name = ["gpt_train", "gpt_train", "fragment_oom", "gpt_train"][if rank < 4 { rank } else { 0 }];
        let to = folder.path().join(format!("job/job_rank{rank}.pickle"));
        std::fs::copy(samples.join(format!("{name}.pickle")), to).expect("a bundled sample");
    }
    folder
}

fn page(folder: &Path, theme: Theme, size: [f32; 2]) -> Whole {
    let path = folder.to_path_buf();
    whole(theme, size, move |app| app.actions().send(Action::OpenRanks(vec![path.clone()])))
}

#[test]
fn pictures_of_few_and_of_many() {
    let mut pictures = Pictures::new();
    let (few, many) = (job(4), job(24));
    pictures.compare("ranks_few_light", page(&few.path().join("job"), Theme::Light, [760.0, 480.0]));
    pictures.compare("ranks_many_dark", page(&many.path().join("job"), Theme::Dark, [1000.0, 520.0]));
}

#[test]
fn two_clicks_compare_two_ranks() {
    let folder = job(4);
    let mut h = page(&folder.path().join("job"), Theme::Dark, [1000.0, 600.0]);
    assert!(h.query_by_label("Open rank 2, which failed").is_some(), "the one that failed is one click away");
    for rank in [3, 1] {
        h.get_all_by_label_contains(&format!("rank {rank}, job_rank{rank}.pickle")).next().expect("its row").click();
        // Longer than a double click.
        h.run_steps(12);
    }
    press(&mut h, "Compare rank 3 with rank 1");
    let app = h.state().as_ref().expect("an app");
    let document = app.active_document().expect("a document in front");
    assert!(document.title.contains("job_rank3"), "A is in front: {}", document.title);
    for side in ["job_rank3.pickle at its peak", "job_rank1.pickle at its peak"] {
        assert!(h.query_all_by_label_contains(side).next().is_some(), "both sides are called alike: {side}");
    }
}

#[test]
fn those_that_failed_are_listed_alone_and_the_page_explains_itself() {
    let folder = job(24);
    let mut h = page(&folder.path().join("job"), Theme::Dark, [1000.0, 520.0]);
    let has = |h: &Whole, words: &str| h.query_all_by_label_contains(words).next().is_some();
    assert!(has(&h, "rank 0, job_rank0.pickle"));
    press(&mut h, "Out of memory 1");
    assert!(has(&h, "rank 2, job_rank2.pickle") && !has(&h, "rank 0, job_rank0.pickle"));
    press(&mut h, "Explain Ranks");
    assert!(has(&h, "double click: open the rank's recording in a tab"));
}

#[test]
fn rows_are_chosen_by_keyboard_and_escape_lets_them_go() {
    let folder = job(24);
    let mut h = page(&folder.path().join("job"), Theme::Dark, [1000.0, 600.0]);
    let has = |h: &Whole, words: &str| h.query_all_by_label_contains(words).next().is_some();
    h.get_all_by_label_contains("rank 0, job_rank0.pickle").next().expect("its row").click();
    h.run_steps(12);
    assert!(has(&h, "Open rank 0"));
    // Past the last visible row.
    for _ in 0..20 {
        h.key_press(egui::Key::ArrowDown);
        h.run_steps(8);
    }
    press_key(&mut h, egui::Key::Enter);
    assert!(has(&h, "Compare rank 0 with rank 20"));
    press_key(&mut h, egui::Key::Escape);
    assert!(!has(&h, "Compare rank 0 with rank 20") && has(&h, "Open rank 2, which failed"));
}
