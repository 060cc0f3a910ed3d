//! Saves a recording as a PyTorch snapshot, whatever it came from: a probe run, a simulation, a file of another format.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use vramscope_core::diagnose::export;
use vramscope_core::model::Recording;
use vramscope_core::units::{Bytes, counted};

#[derive(Default)]
pub(in crate::app) struct Saves {
    /// The recording whose path is being chosen. Another tab may be in front by then.
    pub(in crate::app) wanted: Option<Arc<Recording>>,
    /// The recording whose report's path is being chosen.
    pub(in crate::app) reported: Option<Arc<Recording>>,
    pub(in crate::app) answers: Vec<(PathBuf, Receiver<Result<String, String>>)>,
}

pub(in crate::app) fn save(recording: &Recording, path: &Path) -> Result<String, String> {
    // The dialog asked already whether to replace a file of this name.
    export::save(recording, path, &[], true).map_err(|e| e.to_string())?;
    let events = recording.devices.iter().map(|d| d.events.len() as u64).sum();
    let size = std::fs::metadata(path).map_or(0, |m| m.len());
    // The saved file has the same doubtful figures, and the user should learn that now.
    let doubt = if recording.report.caveat().is_some() { " As in the original, its figures are to doubt." } else { "" };
    Ok(format!("Saved {}: {}, {}.{doubt}", path.display(), counted(events, "event", "events"), Bytes(size)))
}

/// A file name for a snapshot, from the recording's title in plain characters without its endings.
pub(in crate::app) fn file_name(title: &str) -> String {
    let stem = title.split(".pickle").next().unwrap_or(title);
    let mut name = String::new();
    for c in stem.chars() {
        if c.is_alphanumeric() || matches!(c, '.' | '-') {
            name.push(c);
        } else if !name.ends_with('_') {
            name.push('_');
        }
    }
    let name = name.trim_matches(['_', '.']);
    format!("{}.pickle", if name.is_empty() { "recording" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::model::Progress;

    #[test]
    fn what_is_saved_opens_with_the_same_events_and_a_failure_leaves_nothing() {
        let recording = crate::app::data::samples::open("two_gpus.pickle");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("again.pickle");
        std::fs::write(&path, "what was there before").unwrap();
        let said = save(&recording, &path).unwrap().replace('\u{a0}', " ");
        assert!(said.contains("1,935 events"), "{said}");
        let again = vramscope_core::formats::open(&path, &Progress::new()).unwrap();
        for (a, b) in recording.devices.iter().zip(&again.devices) {
            assert_eq!((a.events.len(), &a.segments.len(), a.blocks.len()), (b.events.len(), &b.segments.len(), b.blocks.len()));
            assert_eq!((&a.events.address, &a.events.size), (&b.events.address, &b.events.size));
        }
        assert!(save(&recording, &folder.path().join("none/x.pickle")).unwrap_err().contains("there is no folder"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_of_a_file_cut_short_says_so_and_ends_as_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let [cut, copy, second] = ["cut", "copy", "second"].map(|name| folder.path().join(name).with_extension("pickle"));
        let bytes = std::fs::read(crate::app::data::samples::path("gpt_train.pickle")).unwrap();
        std::fs::write(&cut, &bytes[..bytes.len() * 6 / 10]).unwrap();
        let open = |path: &Path| vramscope_core::formats::open(path, &Progress::new()).unwrap();
        let source = open(&cut);
        save(&source, &copy).unwrap();
        save(&open(&copy), &second).unwrap();
        for again in [open(&copy), open(&second)] {
            assert_eq!(again.report.caveat(), source.report.caveat());
            let text = &again.report.truncated().unwrap().text;
            assert_eq!(text.matches("copy of a file").count(), 1, "{text}");
            let live = |r: &Recording| {
                let tables = vramscope_core::tables::DeviceTables::build(&r.devices[0], &Progress::new()).unwrap();
                assert!(r.devices[0].segments.is_empty() || tables.curves.peak(vramscope_core::tables::Quantity::Reserved).0 > 0);
                tables.states.at(&r.devices[0], &tables.lifetimes, r.devices[0].events.len() as u32 - 1).blocks.len()
            };
            assert_eq!(live(&again), live(&source));
        }
    }

    #[test]
    fn names_are_plain_and_end_as_snapshots_do() {
        for (title, name) in [
            ("probe: leak, simulated", "probe_leak_simulated.pickle"),
            ("run-7.b.pickle.gz", "run-7.b.pickle"),
            ("What-if: expandable_segments:True, 4 GiB", "What-if_expandable_segments_True_4_GiB.pickle"),
            ("/..", "recording.pickle"),
        ] {
            assert_eq!(file_name(title), name);
        }
    }
}
