//! Frames and stacks of a [`Tree`], interned by value. A list that the file shares is read once.

use rustc_hash::FxHashMap;

use super::super::pickle::{Node, NodeId, Tree};
use crate::model::{Frame, FrameId, LoadReport, StackId, StackTableBuilder, StrId, WarningKind};

/// Longer stacks are truncated. CPython's own recursion limit is a thousand.
pub(crate) const MAX_FRAMES: usize = 4096;

/// Interns strings, frames and stacks, with a cache by node.
pub(crate) struct StackReader<'b> {
    pub(crate) builder: &'b mut StackTableBuilder,
    texts: FxHashMap<NodeId, StrId>,
    frames: FxHashMap<NodeId, Option<FrameId>>,
    stacks: FxHashMap<NodeId, StackId>,
}

impl<'b> StackReader<'b> {
    /// A reader of one tree that interns into `builder`.
    pub(crate) fn new(builder: &'b mut StackTableBuilder) -> Self {
        StackReader { builder, texts: FxHashMap::default(), frames: FxHashMap::default(), stacks: FxHashMap::default() }
    }

    /// Clears the cache, because the node ids will be reused for other values.
    pub(crate) fn forget(&mut self) {
        self.texts.clear();
        self.frames.clear();
        self.stacks.clear();
    }

    /// The id of a text value. Invalid UTF-8 is replaced and counted.
    pub(crate) fn text(&mut self, tree: &Tree, id: NodeId, report: &mut LoadReport) -> StrId {
        if let Some(&known) = self.texts.get(&id) {
            return known;
        }
        let text = match tree.node(id) {
            Node::Str(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                if text.contains(char::REPLACEMENT_CHARACTER) && std::str::from_utf8(bytes).is_err() {
                    report.warn(WarningKind::InvalidText, tree.place(id), || {
                        "text that is not UTF-8; the odd bytes are shown as replacement characters".to_owned()
                    });
                }
                self.builder.string(&text)
            }
            _ => self.builder.string(&tree.text_of(id)),
        };
        self.texts.insert(id, text);
        text
    }

    /// The stack of a `frames` list; [`StackId::NONE`] for an empty one.
    pub(crate) fn stack(&mut self, tree: &Tree, list: NodeId, report: &mut LoadReport) -> StackId {
        if let Some(&known) = self.stacks.get(&list) {
            return known;
        }
        let items = items_of(tree, list, "frames", "a list", report);
        let mut ids = Vec::with_capacity(items.len().min(MAX_FRAMES));
        for &item in items.iter().take(MAX_FRAMES) {
            ids.extend(self.frame(tree, item, report));
        }
        if items.len() > MAX_FRAMES {
            report.warn(WarningKind::Skipped, tree.place(list), || {
                format!("stacks of more than {MAX_FRAMES} frames; the outermost frames were left out")
            });
        }
        let stack = self.builder.stack(&ids);
        self.stacks.insert(list, stack);
        stack
    }

    /// A stack with the lines of a `cpp_frames` text (PyTorch 2.0) added inside the Python frames.
    pub(crate) fn with_cpp(&mut self, python: StackId, text: &str) -> StackId {
        let mut ids = Vec::new();
        let file = self.builder.string("");
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()).take(MAX_FRAMES) {
            let name = self.builder.string(line);
            ids.push(self.builder.frame(Frame { name, file, line: 0 }));
        }
        ids.extend_from_slice(self.builder.table().frames(python));
        self.builder.stack(&ids)
    }

    /// The id of a frame; `None` (counted) for a value that is not a frame.
    pub(crate) fn frame(&mut self, tree: &Tree, id: NodeId, report: &mut LoadReport) -> Option<FrameId> {
        if let Some(&known) = self.frames.get(&id) {
            return known;
        }
        let frame = match tree.node(id) {
            Node::Dict(pairs) => Some(self.frame_of_pairs(tree, pairs, report)),
            // Some forks write a frame as one formatted line.
            Node::Str(_) => {
                let name = self.text(tree, id, report);
                let file = self.builder.string("");
                Some(self.builder.frame(Frame { name, file, line: 0 }))
            }
            _ => {
                wrong_type(tree, id, "a frame", "a dict", report);
                None
            }
        };
        self.frames.insert(id, frame);
        frame
    }

    fn frame_of_pairs(&mut self, tree: &Tree, pairs: &[(NodeId, NodeId)], report: &mut LoadReport) -> FrameId {
        let empty = self.builder.string("");
        let mut frame = Frame { name: empty, file: empty, line: 0 };
        for &(key, value) in pairs {
            match tree.bytes(key) {
                Some(b"name") => frame.name = self.text(tree, value, report),
                Some(b"filename") => frame.file = self.text(tree, value, report),
                Some(b"line") => match tree.as_u64(value).map(|line| (u32::try_from(line), line as i64)) {
                    Some((Ok(line), _)) => frame.line = line,
                    // -1 means "unknown" in Python; the C++ writer stores it as an unsigned number.
                    Some((Err(_), -1)) => {}
                    _ => wrong_type(tree, value, "line", "a line number", report),
                },
                Some(key) if key.starts_with(b"fx_") => {
                    report.warn(WarningKind::Skipped, tree.place(value), || {
                        "frames with torch.fx fields (fx_node_op and others); the frames were kept, the fields were not"
                            .to_owned()
                    });
                }
                _ => unknown_key(tree, key, "a frame", report),
            }
        }
        self.builder.frame(frame)
    }
}

/// Counts a value of the wrong type.
pub(crate) fn wrong_type(tree: &Tree, id: NodeId, what: &str, wanted: &str, report: &mut LoadReport) {
    report.warn(WarningKind::WrongType, tree.place(id), || {
        format!("{what} should be {wanted} but is {}; it was ignored", tree.node(id).type_name())
    });
}

/// The items of a list; counts another value as of the wrong type.
pub(crate) fn items_of<'t>(tree: &'t Tree, list: NodeId, what: &str, wanted: &str, report: &mut LoadReport) -> &'t [NodeId] {
    if !matches!(tree.node(list), Node::List(_) | Node::Tuple(_) | Node::None) {
        wrong_type(tree, list, what, wanted, report);
    }
    tree.items(list)
}

/// Counts a key this version does not know.
pub(crate) fn unknown_key(tree: &Tree, key: NodeId, place: &str, report: &mut LoadReport) {
    report.warn(WarningKind::UnknownKey, tree.place(key), || unknown_key_text(place, &tree.text_of(key)));
}

/// What is said of keys this version does not know, which are counted together; `key` is the first.
pub(crate) fn unknown_key_text(place: &str, key: &str) -> String {
    format!("values under keys that this version does not know, the first '{key}' of {place}")
}
