//! [`LoadReport`]: what a reader found odd. Nothing is dropped without being counted here.

/// Warnings and the cost of loading.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Wall-clock seconds from opening to the finished recording.
    pub seconds: f64,
    /// One entry a kind, with how often and where first.
    pub warnings: Vec<LoadWarning>,
}

impl LoadReport {
    /// The warning that the source ends in the middle, when it does: what came after is not known.
    #[must_use]
    pub fn truncated(&self) -> Option<&LoadWarning> {
        self.warnings.iter().find(|w| w.kind == WarningKind::Truncated)
    }

    /// What must be said before any figure: that the source changed while it was read or ends in the middle, or that values in it
    /// made no sense. One clause without a full stop; `None` when none is so.
    #[must_use]
    pub fn caveat(&self) -> Option<String> {
        let changed = self.warnings.iter().any(|w| w.kind == WarningKind::Changed);
        let cut = match self.truncated() {
            _ if changed => Some("the file changed while it was read, so figures may be wrong; open it again".to_owned()),
            Some(_) => Some("the file is cut short, so these figures hold for the part that was read".to_owned()),
            None => None,
        };
        let nonsense = self.nonsense();
        let values = (nonsense > 0).then(|| {
            let verb = if nonsense == 1 { "value of the file makes" } else { "values of the file make" };
            format!("{} {verb} no sense, so figures may be wrong", crate::units::count(nonsense))
        });
        match (cut, values) {
            (Some(cut), Some(values)) => Some(format!("{cut}; {values}")),
            (cut, values) => cut.or(values),
        }
    }

    /// How many values were of a wrong type or of a size that nothing has.
    #[must_use]
    pub fn nonsense(&self) -> u64 {
        self.warnings.iter().filter(|w| w.kind == WarningKind::WrongType).map(|w| w.count).sum()
    }

    /// Counts one occurrence of `kind`; the text and offset of the first one are kept.
    pub fn warn(&mut self, kind: WarningKind, offset: Option<u64>, text: impl FnOnce() -> String) {
        self.warn_many(kind, 1, offset, text);
    }

    /// Counts `count` occurrences of `kind` at once.
    pub fn warn_many(&mut self, kind: WarningKind, count: u64, offset: Option<u64>, text: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        if let Some(seen) = self.warnings.iter_mut().find(|w| w.kind == kind) {
            seen.count += count;
        } else {
            self.warnings.push(LoadWarning { kind, count, first_offset: offset, text: text() });
        }
    }
}

/// One kind of oddity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadWarning {
    /// Which.
    pub kind: WarningKind,
    /// How often.
    pub count: u64,
    /// Byte offset of the first, where the reader knows it.
    pub first_offset: Option<u64>,
    /// One sentence: what was met, what was done about it.
    pub text: String,
}

/// Kinds of oddities a reader can meet and go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WarningKind {
    /// The file ends in the middle; what came before was read.
    Truncated,
    /// The file was written while it was read.
    Changed,
    /// A key this version does not know.
    UnknownKey,
    /// An action this version does not know.
    UnknownAction,
    /// A value of another type than expected.
    WrongType,
    /// Times went backwards; events were sorted.
    OutOfOrder,
    /// The ring buffer wrapped, or recording began mid-run: the start was reconstructed.
    StartMissing,
    /// A free without its allocation where none can have been missing.
    UnmatchedFree,
    /// An allocation at an address still live.
    LostFree,
    /// Events after which the final segments do not follow from the trace.
    StateMismatch,
    /// An annotation that ended without a start, or never ended.
    OpenAnnotation,
    /// Invalid JSON that could be skipped.
    InvalidJson,
    /// Text that was not valid UTF-8.
    InvalidText,
    /// The source has no addresses: those of the recording are made up to keep allocations apart.
    NoAddresses,
    /// Data of a device or kind that is not shown.
    Skipped,
}

impl WarningKind {
    /// A short stable name, used in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WarningKind::Truncated => "truncated",
            WarningKind::Changed => "changed",
            WarningKind::UnknownKey => "unknown_key",
            WarningKind::UnknownAction => "unknown_action",
            WarningKind::WrongType => "wrong_type",
            WarningKind::OutOfOrder => "out_of_order",
            WarningKind::StartMissing => "start_missing",
            WarningKind::UnmatchedFree => "unmatched_free",
            WarningKind::LostFree => "lost_free",
            WarningKind::StateMismatch => "state_mismatch",
            WarningKind::OpenAnnotation => "open_annotation",
            WarningKind::InvalidJson => "invalid_json",
            WarningKind::InvalidText => "invalid_text",
            WarningKind::NoAddresses => "no_addresses",
            WarningKind::Skipped => "skipped",
        }
    }
}
