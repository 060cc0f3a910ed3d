//! A window opened without files: the last session is restored if the user wants that.

use crate::shared::sample;
use std::path::{Path, PathBuf};

use egui::Theme;
use vramscope::app::settings::Settings;

use crate::whole::{Whole, app, with_settings};

const SIZE: [f32; 2] = [1200.0, 800.0];

fn left_open(files: &[&Path], reopens: bool) -> Settings {
    let left_open = files.iter().map(|path| path.to_str().expect("text").to_owned()).collect();
    Settings { reopens, left_open, tour_was_offered: true, ..Settings::default() }
}

fn bare(settings: Settings) -> Whole {
    with_settings(settings, Theme::Dark, SIZE, |app| app.begin_bare())
}

fn titles(h: &Whole) -> Vec<String> {
    app(h).documents().iter().map(|d| d.title.clone()).collect()
}

#[test]
fn files_of_the_last_window_come_back_in_their_order() {
    let names = ["leak.pickle", "fragment_oom.pickle", "two_gpus.pickle"];
    let files: Vec<PathBuf> = names.iter().map(|name| sample(name)).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let h = bare(left_open(&files, true));
    assert_eq!(titles(&h), names);
    assert!(app(&h).documents().iter().all(|d| d.view().is_some()), "each is read");
    assert_eq!(app(&h).active_document().map(|d| d.title.as_str()), Some("leak.pickle"));
    assert_eq!(app(&h).notices().count(), 0);
    let h = bare(left_open(&files, false));
    assert_eq!(titles(&h), [""; 0], "not unless it was chosen");
}

#[test]
fn ranks_of_one_job_that_stood_in_tabs_stand_in_tabs_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<PathBuf> = (0..6).map(|i| folder.path().join(format!("mem_rank{i}.pickle"))).collect();
    for file in &files {
        std::fs::copy(sample("fragment_oom.pickle"), file).expect("a copy");
    }
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let h = bare(left_open(&files, true));
    assert_eq!(titles(&h), ["0", "1", "2", "3", "4", "5"].map(|i| format!("mem_rank{i}.pickle")));
    // A folder that was opened as one page is restored as one page.
    let h = bare(left_open(&[folder.path(), files[2]], true));
    let page = format!("{} (ranks)", folder.path().file_name().expect("a name").to_string_lossy());
    assert_eq!(titles(&h), [page, "mem_rank2.pickle".to_owned()]);
}

#[test]
fn files_that_are_gone_are_told_of_in_one_sentence() {
    let (there, gone) = (sample("leak.pickle"), Path::new("/nowhere/gone.pickle"));
    let h = bare(left_open(&[gone, &there], true));
    assert_eq!(titles(&h), ["leak.pickle"]);
    let said: Vec<&str> = app(&h).notices().collect();
    assert_eq!(said, ["/nowhere/gone.pickle was open in the last window and is not there any more."]);
    let more = [gone, Path::new("/nowhere/b.pickle"), Path::new("/nowhere/c.pickle")];
    let h = bare(left_open(&more, true));
    let said: Vec<String> = app(&h).notices().map(|n| n.replace('\u{a0}', " ")).collect();
    assert_eq!(said, ["/nowhere/gone.pickle and 2 other files were open in the last window and are not there any more."]);
}
