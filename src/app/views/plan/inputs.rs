//! The recordings of a plan and the size of each: the one in front, other tabs, files of the folder. Sizes are guessed from names
//! and can be edited.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::ViewContext;
use crate::app::data::device::{DeviceData, prepare};
use crate::app::jobs::Derived;
use crate::app::jobs::locked;
use crate::app::state::DocumentId;
use crate::app::widgets::Sparkline;
use vramscope_core::formats;
use vramscope_core::inference::whatif::WhatIf;
use vramscope_core::model::Progress;
use vramscope_core::plan::names::{are_siblings, sizes_of, value_of};
use vramscope_core::plan::{Input, NoPlan, Plan, Side, Size};
use vramscope_core::tables::{DeviceTables, Quantity};

/// Most files of the folder that are offered.
const OFFERS: usize = 5;
/// Points of a sparkline.
const POINTS: usize = 96;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    /// The recording of this tab.
    Here,
    /// A recording that is open in another tab.
    Tab(DocumentId),
    /// A file that is not open in a tab.
    File(PathBuf),
}

#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub origin: Origin,
    /// The name of its file or tab.
    pub name: String,
    /// The typed size of each quantity.
    pub texts: Vec<String>,
    /// The sizes were read from the file's name and not changed by the user.
    pub is_guess: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub events: u64,
    pub peak: u64,
    pub sparkline: Sparkline,
}

pub(super) struct Built {
    pub plan: Result<Arc<Plan>, Refusal>,
    pub shown: Vec<Shown>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    /// One sentence without a full stop.
    pub sentence: String,
    /// When two recordings are of different programs: what each requests where they start to differ. Otherwise empty.
    pub sides: Vec<Side>,
    /// What-if can still answer questions about this program.
    pub asks_whatif: bool,
}

impl Refusal {
    fn of(sentence: String) -> Self {
        Refusal { sentence, sides: Vec::new(), asks_whatif: false }
    }
}

/// The key of a plan: whether the sizes are known, and the recordings with their sizes.
type Key = (bool, Vec<(Origin, Size)>);

/// The recordings, their sizes, and the plan made of them.
#[derive(Default)]
pub(super) struct Inputs {
    pub chosen: Vec<Chosen>,
    /// The names of the quantities as typed: `batch`, or `batch, seq`.
    pub names: String,
    /// The user has not typed names of quantities.
    is_guessed: bool,
    built: Derived<Key, Built>,
    offers: Derived<PathBuf, Vec<PathBuf>>,
    /// Files that were read already, so that a changed size does not read them again.
    read: Arc<Mutex<HashMap<PathBuf, Arc<DeviceData>>>>,
}

pub(super) enum State {
    /// The plan is being made, with its progress.
    Making(Option<f32>),
    Ready(Arc<Built>),
    /// A size is missing, or two recordings have the same size. The sentence says what to type.
    Incomplete(String),
}

impl Inputs {
    /// Starts with the recording in front, and with those of other tabs whose names say that they are of the same program.
    pub fn begin(&mut self, cx: &ViewContext<'_>) {
        if self.chosen.is_empty() {
            let own = cx.data.recording.source.name.clone();
            self.is_guessed = true;
            self.add(Origin::Here, own.clone());
            for open in cx.comparing.open() {
                let name = open.data.recording.source.name.clone();
                if are_siblings(&own, &name) {
                    self.add(Origin::Tab(open.id), name);
                }
            }
        }
    }

    /// The typed names of quantities in lower case; `batch` when none was typed.
    pub fn quantities(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.names.split(',').map(|n| n.trim().to_lowercase()) {
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { vec!["batch".to_owned()] } else { names }
    }

    /// False when the size of the only recording is unknown. The plan then covers only the recorded size.
    pub fn knows_sizes(&self) -> bool {
        self.chosen.iter().all(|c| c.texts.iter().all(|t| !t.trim().is_empty()))
    }

    /// Fills in the sizes from file names, unless the user typed something else.
    fn guess(&mut self) {
        let names: Vec<&str> = self.chosen.iter().map(|c| c.name.as_str()).collect();
        if self.is_guessed {
            let told = sizes_of(&names);
            let quantities: Vec<String> =
                told.as_ref().and_then(|s| s.first()).map_or_else(Vec::new, |s| s.names().map(str::to_owned).collect());
            self.names = if quantities.is_empty() { "batch".to_owned() } else { quantities.join(", ") };
        }
        let quantities = self.quantities();
        for chosen in &mut self.chosen {
            if chosen.is_guess {
                let told = |quantity: &String| value_of(&chosen.name, quantity).map_or_else(String::new, |v| v.to_string());
                chosen.texts = quantities.iter().map(told).collect();
            }
            chosen.texts.resize(quantities.len(), String::new());
        }
    }

    /// Uses the typed names of quantities.
    pub fn take_names(&mut self) {
        self.is_guessed = self.names.trim().is_empty();
        self.guess();
        self.names = self.quantities().join(", ");
    }

    pub fn add(&mut self, origin: Origin, name: String) {
        if self.chosen.iter().all(|c| c.origin != origin) {
            self.chosen.push(Chosen { origin, name, texts: Vec::new(), is_guess: true });
            self.guess();
        }
    }

    /// Removes a recording, except that of this tab.
    pub fn remove(&mut self, at: usize) {
        if at > 0 && at < self.chosen.len() {
            self.chosen.remove(at);
            self.guess();
        }
    }

    pub fn set(&mut self, at: usize, quantity: &str, value: u64) {
        let Some(i) = self.quantities().iter().position(|name| name == quantity) else { return };
        if let Some(chosen) = self.chosen.get_mut(at)
            && let Some(text) = chosen.texts.get_mut(i)
        {
            (*text, chosen.is_guess) = (value.to_string(), false);
        }
    }

    pub fn only_first(&mut self) {
        self.chosen.truncate(1);
        self.guess();
    }

    /// The size of each recording, or a sentence on what is missing.
    fn sizes(&self) -> Result<Vec<Size>, String> {
        let quantities = self.quantities();
        if self.chosen.len() == 1 && !self.knows_sizes() {
            // The recorded size, whatever it is.
            return Ok(vec![quantities.iter().fold(Size::default(), |size, name| size.with(name, 1))]);
        }
        self.chosen
            .iter()
            .map(|chosen| {
                let mut size = Size::default();
                for (name, text) in quantities.iter().zip(&chosen.texts) {
                    let value = text.trim().parse::<u64>().ok().filter(|v| (1..1 << 32).contains(v));
                    let Some(value) = value else {
                        return Err(match text.trim() {
                            "" => format!("Type the {name} that {} was run at.", chosen.name),
                            text => format!("\"{text}\" is no {name}: type a whole number above 0 for {}.", chosen.name),
                        });
                    };
                    size = size.with(name, value);
                }
                Ok(size)
            })
            .collect()
    }

    /// The plan, computed off the window's thread.
    pub fn plan(&mut self, cx: &ViewContext<'_>) -> State {
        let sizes = match self.sizes() {
            Ok(sizes) => sizes,
            Err(sentence) => return State::Incomplete(sentence),
        };
        let open = cx.comparing.open();
        let key: Key = (self.knows_sizes(), self.chosen.iter().map(|c| c.origin.clone()).zip(sizes).collect());
        let own = Arc::clone(cx.data);
        let tabs: Vec<(DocumentId, Arc<DeviceData>)> = open.into_iter().map(|o| (o.id, o.data)).collect();
        let (read, wanted) = (Arc::clone(&self.read), key.clone());
        let shown = self.built.get(cx.jobs, "plan", &key, move |progress| build(&own, &tabs, &read, wanted, progress));
        match shown.fresh() {
            Some(built) => State::Ready(built),
            None => State::Making(shown.fraction),
        }
    }

    /// The newest plan, which may still be of other recordings.
    pub fn latest(&self) -> Option<&Arc<Built>> {
        self.built.latest()
    }

    /// Files beside the recording in front whose names differ from its name only in sizes.
    pub fn offered(&mut self, cx: &ViewContext<'_>) -> Vec<PathBuf> {
        let Some(path) = cx.data.recording.source.path.clone() else { return Vec::new() };
        let offers = self.offers.get(cx.jobs, "folder", &path, {
            let path = path.clone();
            move |_| Some(siblings(&path))
        });
        let is_new = |path: &&PathBuf| self.chosen.iter().all(|c| c.name != name_of(path));
        offers.value.iter().flat_map(|all| all.iter()).filter(is_new).take(OFFERS).cloned().collect()
    }
}

/// The name of a file; the whole path if it has none.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// Files in the same folder that are most likely recordings of the same program, nearest sizes first.
fn siblings(path: &Path) -> Vec<PathBuf> {
    let own = name_of(path);
    let Some(entries) = path.parent().and_then(|folder| std::fs::read_dir(folder).ok()) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.is_file() && are_siblings(&own, &name_of(p))).collect();
    let apart = |path: &PathBuf| -> (usize, bool, u64, String) {
        let other = name_of(path);
        let sizes = sizes_of(&[&own, &other]).unwrap_or_default();
        let [mine, theirs] = sizes.as_slice() else { return (usize::MAX, true, 0, other) };
        let ratio = |(name, v): (&str, u64)| theirs.get(name).map_or(0, |w| v.max(w) * 16 / v.min(w).max(1));
        // Recordings that differ in only one quantity are the most useful, above all when that is the batch.
        (mine.names().count(), mine.get("batch").is_none(), mine.iter().map(ratio).sum(), other)
    };
    found.sort_by_cached_key(apart);
    found
}

/// Reads the files that are not open, and makes the plan. `None` when cancelled.
fn build(
    own: &Arc<DeviceData>,
    tabs: &[(DocumentId, Arc<DeviceData>)],
    read: &Mutex<HashMap<PathBuf, Arc<DeviceData>>>,
    (knows_sizes, wanted): Key,
    progress: &Progress,
) -> Option<Built> {
    let refused = |sentence: String, shown| Some(Built { plan: Err(Refusal::of(sentence)), shown });
    let mut all: Vec<(Arc<DeviceData>, Size)> = Vec::new();
    for (origin, size) in wanted {
        let data = match origin {
            Origin::Here => Arc::clone(own),
            Origin::Tab(id) => match tabs.iter().find(|(tab, _)| *tab == id) {
                Some((_, data)) => Arc::clone(data),
                None => return refused("the tab of a recording was closed: add it again as a file".to_owned(), Vec::new()),
            },
            Origin::File(path) => {
                let known = locked(read).get(&path).cloned();
                match known.map_or_else(|| open(&path, progress), Ok) {
                    Ok(data) => {
                        locked(read).insert(path, Arc::clone(&data));
                        data
                    }
                    Err(_) if progress.check().is_err() => return None,
                    Err(sentence) => return refused(sentence, Vec::new()),
                }
            }
        };
        all.push((data, size));
    }
    let shown: Vec<Shown> = all.iter().map(|(data, _)| show(data)).collect();
    if let Some((data, _)) = all.iter().find(|(data, _)| !WhatIf::has_requests(data.device())) {
        let sentence = format!("{} holds no request for memory, so nothing of it can be planned", data.recording.source.name);
        return refused(sentence, shown);
    }
    let mut inputs: Vec<Input<'_>> = all
        .iter()
        .map(|(data, at)| Input {
            recording: Arc::clone(&data.recording),
            device: data.index,
            tables: &data.tables,
            at: at.clone(),
        })
        .collect();
    let plan = match inputs.pop_if(|_| !knows_sizes) {
        Some(only) => Plan::as_recorded(only, progress),
        None => Plan::of(inputs, progress),
    };
    let plan = match plan {
        Ok(plan) => Ok(Arc::new(plan)),
        Err(NoPlan::Cancelled(_)) => return None,
        Err(NoPlan::Parts(parting)) => Err(Refusal { sides: parting.sides.to_vec(), ..Refusal::of(parting.why) }),
        Err(NoPlan::Sizes(sentence) | NoPlan::Steps(sentence)) => Err(Refusal::of(sentence)),
        Err(NoPlan::NoSteps(sentence)) => Err(Refusal { asks_whatif: true, ..Refusal::of(sentence) }),
    };
    Some(Built { plan, shown })
}

fn open(path: &Path, progress: &Progress) -> Result<Arc<DeviceData>, String> {
    let recording = Arc::new(formats::open(path, progress).map_err(|e| e.to_string())?);
    let index = recording.busiest_device().ok_or_else(|| format!("{}: it holds no device's memory", path.display()))?;
    prepare(&recording, index, progress)
}

fn show(data: &DeviceData) -> Shown {
    let (device, tables): (_, &DeviceTables) = (data.device(), &data.tables);
    let n = device.events.len() as u64;
    let bounds: Vec<u32> = (0..=POINTS as u64).map(|i| (n * i / POINTS as u64) as u32).collect();
    let curve = |quantity| {
        let cells = tables.curves.columns(device, &tables.lifetimes, quantity, &bounds);
        cells.iter().map(|cell| cell.max as f32).collect()
    };
    let sparkline =
        Sparkline { reserved: curve(Quantity::Reserved), allocated: curve(Quantity::Allocated), oom: !data.ooms.is_empty() };
    Shown { events: n, peak: tables.curves.peak(Quantity::Reserved).0, sparkline }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(names: &[&str]) -> Inputs {
        let mut inputs = Inputs { is_guessed: true, ..Inputs::default() };
        for (i, name) in names.iter().enumerate() {
            let origin = if i == 0 { Origin::Here } else { Origin::File((*name).into()) };
            inputs.add(origin, (*name).to_owned());
        }
        inputs
    }

    #[test]
    fn sizes_are_guessed_and_what_is_typed_stays() {
        let mut i = inputs(&["r_b16_s224.pickle", "r_b32_s224.pickle"]);
        assert_eq!((i.names.as_str(), i.chosen[1].texts.clone()), ("batch", vec!["32".to_owned()]));
        (i.chosen[1].texts, i.chosen[1].is_guess) = (vec!["30".to_owned()], false);
        i.add(Origin::File("r_b64_s112.pickle".into()), "r_b64_s112.pickle".to_owned());
        assert_eq!(i.names, "batch, s", "the third differs in two");
        assert_eq!(i.chosen[1].texts, ["30", ""], "what was typed stays, what was not is asked for");
        assert_eq!(i.sizes(), Err("Type the s that r_b32_s224.pickle was run at.".to_owned()));
        i.remove(2);
        assert_eq!(i.sizes().map(|s| s[1].to_string()), Ok("batch 30".to_owned()));
        i.remove(0);
        assert_eq!(i.chosen.len(), 2, "the tab's own recording stays");
    }

    #[test]
    fn a_single_recording_of_unknown_size_is_planned_as_it_is() {
        let i = inputs(&["oom.pickle"]);
        assert!(!i.knows_sizes());
        assert_eq!(i.sizes().map(|s| s[0].to_string()), Ok("batch 1".to_owned()));
        let two = inputs(&["a.pickle", "b.pickle"]);
        assert_eq!(two.sizes(), Err("Type the batch that a.pickle was run at.".to_owned()));
    }

    #[test]
    fn runs_of_the_same_program_are_offered_nearest_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["g_b4_s512.pickle", "g_b8_s512.pickle", "g_b16_s512.pickle", "g_b8_s256.pickle", "other.pickle", "g_b64_s8.pickle"]
        {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        let names: Vec<String> = siblings(&folder.path().join("g_b8_s512.pickle")).iter().map(|p| name_of(p)).collect();
        assert_eq!(names, ["g_b16_s512.pickle", "g_b4_s512.pickle", "g_b8_s256.pickle", "g_b64_s8.pickle"]);
    }
}
