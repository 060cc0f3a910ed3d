//! [`Document`]: an open recording, the data derived from it, and the state that its views share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::loader::Loading;
use crate::app::data::colours::Colours;
use crate::app::data::compare::Comparing;
use crate::app::data::device::DeviceData;
use crate::app::jobs::identity::Identity;
use crate::app::jobs::{Derived, Jobs};
use crate::app::live::LiveFeed;
use crate::app::pages::probe::ProbePage;
use crate::app::pages::ranks::Ranks;
use crate::app::state::{ColourBy, DocumentId, Layouts, SharedViewState, ViewKind, Workspace, workspace};
use crate::app::views::View;
use vramscope_core::anatomy::Roles;
use vramscope_core::anatomy::roles::{Rule, Rules};
use vramscope_core::diagnose::findings::{Findings, diagnose};
use vramscope_core::formats::PageSnapshot;
use vramscope_core::model::Recording;
use vramscope_core::query::Scope;
use vramscope_core::query::matching::Matching;
use vramscope_core::tables::State;

/// Interval at which the findings of a live recording are computed again.
const FINDINGS_AGAIN: Duration = Duration::from_secs(5);

pub struct DeviceView {
    pub data: Arc<DeviceData>,
    /// The loading page, which stays until the views have their first pictures.
    pub settling: Option<Settling>,
    pub shared: SharedViewState,
    /// The user has not chosen a colouring, so roles are used when there are any.
    is_colour_open: bool,
    /// The views of this device, created when first shown.
    pub views: HashMap<ViewKind, Box<dyn View>>,
    /// Views that panicked while drawing, with the message. They are not drawn until the user retries.
    pub broken: HashMap<ViewKind, String>,
    pub comparing: Comparing,
    /// Segments and blocks at the cursor.
    pub state: Derived<u32, State>,
    findings: Derived<(u32, Vec<Rule>), Findings>,
    /// The cursor for which findings are wanted and when they were last requested; a live recording requests them repeatedly.
    findings_wanted: (u32, Instant),
    /// The newest colours. Until the first are computed this is always the same empty value, because a new one per frame would
    /// redraw everything.
    colours: Arc<Colours>,
    /// Keyed by the roles too, for colours that depend on them.
    making_colours: Derived<(ColourBy, Option<Identity>), Colours>,
    roles: Derived<Vec<Rule>, Roles>,
    matching: Derived<MatchKey, Matching>,
}

/// The first moments of a device in front. Its views are drawn but not shown, so that they request their pictures and appear
/// together.
pub struct Settling {
    pub page: Loading,
    /// The page was visible, so it stays a little longer. A fast load shows no page at all.
    pub is_seen: bool,
    since: Instant,
    frames: u32,
}

impl Settling {
    /// Pictures that take longer than this appear one by one.
    const LONGEST: Duration = Duration::from_millis(150);

    pub fn new(page: Loading) -> Self {
        Settling { is_seen: !page.is_young(), page, since: Instant::now(), frames: 0 }
    }

    /// Counts a frame drawn behind the page. Returns `None` once all quick pictures are there.
    pub fn next(mut self, jobs: &Jobs) -> Option<Self> {
        self.frames += 1;
        // The second frame requests what depends on the first one's results: a map needs the state at the cursor.
        let is_done = self.frames > 2 && jobs.running() == 0;
        (!is_done && !self.is_over()).then_some(self)
    }

    pub fn is_over(&self) -> bool {
        self.since.elapsed() > Self::LONGEST
    }
}

/// Data derived from a device, as available in this frame.
pub struct Fresh {
    /// Segments and blocks at the cursor, or at an earlier cursor while they are computed.
    pub state: Option<Arc<State>>,
    pub colours: Arc<Colours>,
    pub findings: Option<Arc<Findings>>,
    pub roles: Option<Arc<Roles>>,
    /// The allocations that match the active query.
    pub matching: Option<Arc<Matching>>,
}

impl DeviceView {
    pub fn new(data: Arc<DeviceData>) -> Self {
        let mut shared = SharedViewState::new(data.device());
        if data.ooms.is_empty() && !data.device().events.is_empty() {
            // The end of a run is mostly empty; newcomers ask about the peak.
            let peak = data.tables.curves.peak_event();
            // A recording that never exceeds its start has its peak before the first event.
            shared.cursor = if peak == vramscope_core::tables::NO_EVENT { 0 } else { peak };
        }
        shared.colour_by = ColourBy::Role;
        DeviceView {
            data,
            settling: None,
            shared,
            is_colour_open: true,
            views: HashMap::new(),
            broken: HashMap::new(),
            comparing: Comparing::default(),
            state: Derived::default(),
            findings: Derived::default(),
            findings_wanted: (0, Instant::now()),
            colours: Arc::default(),
            making_colours: Derived::default(),
            roles: Derived::default(),
            matching: Derived::default(),
        }
    }

    /// Uses the colouring that the user chose earlier, unless it makes no sense for this device.
    pub(in crate::app) fn colour_as_chosen(&mut self, chosen: Option<ColourBy>) {
        // A timeline with sums by category is always coloured by category, which is what the file is for.
        if let Some(by) = chosen.filter(|_| self.data.device().bands.is_empty()) {
            self.shared.colour_by = if by == ColourBy::Stack { self.without_roles() } else { by };
            self.is_colour_open = false;
        }
    }

    /// The colouring without known roles: stacks, or sizes when one name would cover everything.
    fn without_roles(&self) -> ColourBy {
        if self.data.names.len() <= 1 { ColourBy::SizeClass } else { ColourBy::Stack }
    }

    /// True while the views are drawn behind the loading page.
    pub fn is_settling(&self) -> bool {
        self.settling.as_ref().is_some_and(|s| !s.is_over())
    }

    /// Replaces the data with a newer version of the same device, as in a live recording. Cursor, window and views stay.
    pub fn replace(&mut self, data: Arc<DeviceData>) {
        let (old, new) = (self.data.device(), data.device());
        if old.segments != new.segments || old.blocks.len() != new.blocks.len() {
            (self.state, self.colours, self.making_colours) = (Derived::default(), Arc::default(), Derived::default());
            (self.roles, self.matching) = (Derived::default(), Derived::default());
        }
        if self.findings_wanted.1.elapsed() > FINDINGS_AGAIN {
            self.findings_wanted = (self.findings_wanted.0.wrapping_add(1), Instant::now());
        }
        self.data = data;
    }

    /// Updates the state at the cursor, the colours, the roles and the query result, and returns the newest there are. `rules`
    /// are the user's role rules.
    pub fn refresh(&mut self, jobs: &Jobs, rules: &[Rule]) -> Fresh {
        let data = Arc::clone(&self.data);
        let cursor = self.shared.cursor;
        let state = self
            .state
            .get(jobs, "state", &cursor, move |_| Some(data.tables.states.at(data.device(), &data.tables.lifetimes, cursor)));
        let data = Arc::clone(&self.data);
        let key = rules.to_vec();
        let own = rules.to_vec();
        let roles = self.roles.get(jobs, "roles", &key, move |progress| {
            // Rules that do not parse match nothing; their editor shows the error.
            let (rules, _) = Rules::new(&own);
            let made = Roles::build(&data.recording, data.device(), &data.tables, &rules, progress).ok()?;
            data.found.knows_roles.get_or_init(|| data.knows_roles(&made));
            Some(made)
        });
        let roles = roles.value;
        if let Some(&knows_roles) = self.data.found.knows_roles.get()
            && std::mem::take(&mut self.is_colour_open)
            && self.shared.colour_by == ColourBy::Role
            && !knows_roles
        {
            self.shared.colour_by = self.without_roles();
        }
        let by = self.shared.colour_by;
        let data = Arc::clone(&self.data);
        let known = roles.clone().filter(|_| by == ColourBy::Role);
        if by != ColourBy::Role || known.is_some() {
            let key = (by, known.as_ref().map(Identity::of));
            let colours = self
                .making_colours
                .get(jobs, "colours", &key, move |_| Some(known.map_or_else(|| Colours::build(&data, by), Colours::of_roles)));
            if let Some(colours) = colours.value {
                self.colours = colours;
            }
        }
        let data = Arc::clone(&self.data);
        let own = rules.to_vec();
        let findings = self.findings.get(jobs, "findings", &(self.findings_wanted.0, rules.to_vec()), move |progress| {
            diagnose(&data.recording, data.device(), &data.tables, &data.names, &Rules::new(&own).0, progress).ok()
        });
        let matching = self.matching(jobs, roles.clone());
        Fresh { state: state.value, colours: Arc::clone(&self.colours), findings: findings.value, roles, matching }
    }

    /// The title of the first finding, once they are known.
    pub fn first_finding(&self) -> Option<&str> {
        self.findings.latest()?.findings.first().map(|finding| finding.title.as_str())
    }

    /// The newest roles if these rules made them.
    pub fn roles_by(&self, rules: &[Rule]) -> Option<&Arc<Roles>> {
        self.roles.latest_for(rules)
    }

    /// The allocations that match the active query, or the previous result while a new one is computed.
    fn matching(&mut self, jobs: &Jobs, roles: Option<Arc<Roles>>) -> Option<Arc<Matching>> {
        let query = Arc::clone(self.shared.query.as_ref()?);
        let needs = query.query.needs_roles();
        if needs && roles.is_none() {
            return None;
        }
        let shared = &self.shared;
        let key = MatchKey {
            text: query.text.clone(),
            roles: roles.as_ref().filter(|_| needs).map(Identity::of),
            cursor: query.query.follows_cursor().then_some(shared.cursor),
            markers: if query.query.follows_markers() { shared.flags() } else { [None; 2] },
        };
        let data = Arc::clone(&self.data);
        let (cursor, markers) = (Some(shared.cursor), shared.flags());
        let answer = self.matching.get(jobs, "query", &key, move |progress| {
            let scope = Scope { cursor, markers, ..data.scope(&query.query, roles.as_deref()) };
            let rows = query.query.allocations(&scope, progress).ok()?;
            Matching::of(data.device(), &data.tables, rows, progress).ok()
        });
        answer.value
    }
}

#[derive(Clone, Debug, PartialEq)]
struct MatchKey {
    text: String,
    /// The roles, when the query uses them.
    roles: Option<Identity>,
    cursor: Option<u32>,
    markers: [Option<u32>; 2],
}

pub enum Content {
    /// A file is being read or its tables are being built.
    Loading(Loading),
    Ready(Box<DeviceView>),
    /// A folder with one recording per rank.
    Ranks(Box<Ranks>),
    /// The probe: a scenario to run and watch.
    Probe(Box<ProbePage>),
    /// The file cannot be opened; one sentence says why and what to do.
    Failed(String),
}

/// What "back" returns to.
pub enum Left {
    Workspace(Workspace),
    /// The panes of a workspace before one was docked elsewhere.
    Layout(Workspace, Box<egui_tiles::Tree<ViewKind>>),
}

pub struct Document {
    pub id: DocumentId,
    pub title: String,
    pub path: Option<PathBuf>,
    /// The recording, once it is read.
    pub recording: Option<Arc<Recording>>,
    pub content: Content,
    /// The snapshots of a saved page that holds several; the user has to choose one.
    pub snapshots: Vec<PageSnapshot>,
    /// Devices shown earlier, kept so that going back is instant.
    pub parked: HashMap<usize, Box<DeviceView>>,
    pub workspace: Workspace,
    /// Earlier workspaces and arrangements, and whether leaving the last one is the newest change that "back" undoes.
    pub left: (Vec<Left>, bool),
    pub layouts: Layouts,
    /// Views that the user only visited. They belong to this document: arrangements for new documents leave them out, until the
    /// user moves panes.
    pub visitors: Vec<(Workspace, ViewKind)>,
    pub feed: Option<LiveFeed>,
    /// For a predicted run: the document with its plan.
    pub planned_in: Option<DocumentId>,
}

impl Document {
    pub fn new(id: DocumentId, title: String, path: Option<PathBuf>, content: Content, layouts: Layouts) -> Self {
        Document {
            id,
            title,
            path,
            recording: None,
            content,
            snapshots: Vec::new(),
            parked: Default::default(),
            workspace: Default::default(),
            left: Default::default(),
            layouts,
            visitors: Vec::new(),
            feed: None,
            planned_in: None,
        }
    }

    /// The arrangements for the next document, without visited views.
    pub fn lasting_layouts(&self) -> Layouts {
        let mut layouts = self.layouts.clone();
        for &(workspace, view) in &self.visitors {
            workspace::close(layouts.tree(workspace), workspace, view);
        }
        layouts
    }

    /// Brings a workspace to the front and remembers the previous one.
    pub fn go_to(&mut self, workspace: Workspace) {
        if self.workspace != workspace {
            let before = std::mem::replace(&mut self.workspace, workspace);
            self.remember(Left::Workspace(before));
        }
    }

    /// Records what "back" returns to.
    pub fn remember(&mut self, left: Left) {
        self.left.0.push(left);
        self.left.1 = true;
    }

    /// True when the next thing to undo is an arrangement of panes.
    pub fn has_left_a_layout(&self) -> bool {
        matches!(self.left.0.last(), Some(Left::Layout(..)))
    }

    /// Goes back to the previous workspace or arrangement; false when there is none.
    pub fn go_back(&mut self) -> bool {
        match self.left.0.pop() {
            None => return false,
            Some(Left::Workspace(workspace)) => self.workspace = workspace,
            Some(Left::Layout(workspace, tree)) => *self.layouts.tree(workspace) = *tree,
        }
        true
    }

    /// The arrangement to use for the workspace in front. Recordings with little content have an overview of their own.
    pub fn arrangement(&self) -> Workspace {
        match self.workspace {
            Workspace::Overview if self.recording.as_ref().is_some_and(|r| r.has_only_counters()) => Workspace::Counters,
            Workspace::Overview if self.view().is_some_and(|v| v.data.has_only_state()) => Workspace::State,
            Workspace::Overview if self.view().is_some_and(|v| v.data.has_only_blocks()) => Workspace::Instant,
            workspace => workspace,
        }
    }

    pub fn view(&self) -> Option<&DeviceView> {
        if let Content::Ready(view) = &self.content { Some(view) } else { None }
    }

    pub fn view_mut(&mut self) -> Option<&mut DeviceView> {
        if let Content::Ready(view) = &mut self.content { Some(view) } else { None }
    }

    /// True when a device of the recording ran out of memory. The tab then shows a red dot.
    pub fn has_oom(&self) -> bool {
        self.view().is_some_and(|v| !v.data.ooms.is_empty() || v.data.failed_elsewhere().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::samples;
    use vramscope_core::model::Progress;

    #[test]
    fn colours_are_the_same_ones_until_others_are_made() {
        let mut view = DeviceView::new(samples::device("gpt_train.pickle"));
        let jobs = Jobs::default();
        // A new empty value per frame would redraw everything each frame.
        let seen: Vec<Arc<Colours>> = (0..12).map(|_| view.refresh(&jobs, &[]).colours).collect();
        let changes = seen.windows(2).filter(|w| !Arc::ptr_eq(&w[0], &w[1])).count();
        assert!(changes <= 1, "{changes} changes in 12 frames");
    }

    #[test]
    fn a_state_without_a_history_has_an_arrangement_of_its_own() {
        let mut recording = samples::open("gpt_train.pickle");
        let arranged = |recording: &Recording| {
            let recording = Arc::new(recording.clone());
            let data = crate::app::data::device::prepare(&recording, 0, &Progress::new()).unwrap();
            let content = Content::Ready(Box::new(DeviceView::new(data)));
            let mut document = Document::new(DocumentId(1), "sample".to_owned(), None, content, Layouts::default());
            document.recording = Some(recording);
            document.arrangement()
        };
        assert_eq!(arranged(&recording), Workspace::Overview);
        for device in &mut recording.devices {
            device.events = Default::default();
            device.annotations = Default::default();
        }
        assert_eq!(arranged(&recording), Workspace::State);
        assert!(!Workspace::State.starts_with(ViewKind::Timeline) && !Workspace::State.starts_with(ViewKind::Heatmap));
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/jax_leak.prof");
        assert_eq!(arranged(&vramscope_core::formats::open(&path, &Progress::new()).unwrap()), Workspace::Instant);
        assert!(!Workspace::Instant.starts_with(ViewKind::Timeline) && !Workspace::Instant.starts_with(ViewKind::SegmentMap));
    }
}
