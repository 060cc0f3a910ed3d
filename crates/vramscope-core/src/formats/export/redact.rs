//! Removes what identifies the machine and its users: every path in any text becomes its last component.
//!
//! Works on the recording, so that no export format can forget a field.

use crate::model::{FrameId, Recording, StrId};

/// Shortens the paths in all texts of a recording: frames, notes, ranges, operators, lanes, settings, names. O(texts).
pub fn redact(recording: &mut Recording) {
    let table = &recording.stacks;
    let files: Vec<StrId> = (0..table.frame_count() as u32).filter_map(|i| Some(table.frame(FrameId(i))?.file)).collect();
    let mut is_file = vec![false; table.text_count()];
    for id in files {
        if let Some(slot) = is_file.get_mut(id.0 as usize) {
            *slot = true;
        }
    }
    recording.stacks.change_texts(|id, text| {
        let is_file = is_file.get(id.0 as usize).copied().unwrap_or(false);
        if is_file && !text.starts_with('<') { file(text).to_owned() } else { text_without_paths(text) }
    });
    for lane in &mut recording.ops.lanes {
        lane.name = text_without_paths(&lane.name);
    }
    recording.source.name = file(&recording.source.name).to_owned();
    recording.source.path = None;
    for device in &mut recording.devices {
        device.name = device.name.take().map(|name| text_without_paths(&name));
        for (_, value) in &mut device.settings.raw {
            *value = text_without_paths(value);
        }
    }
}

/// The part of a path that is safe to show: the part below `site-packages`, otherwise the file's name.
fn file(path: &str) -> &str {
    for mark in ["site-packages/", "dist-packages/", "site-packages\\", "dist-packages\\"] {
        if let Some((_, rest)) = path.rsplit_once(mark) {
            return rest;
        }
    }
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// A text in which every path is shortened to its last component. Anything with a slash counts as a path, also a relative one:
/// losing a word of `a/b` is better than revealing a folder.
pub fn text_without_paths(text: &str) -> String {
    if !text.contains(['/', '\\']) {
        return text.to_owned();
    }
    let ends = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;|=:+*?!".contains(c);
    let is_slash = |c: char| c == '/' || c == '\\';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        rest = &rest[word.len()..];
        if word.contains(is_slash) {
            // Folder names may contain spaces: a following word with a slash inside continues this path.
            let mut last = word;
            while let Some(next) = rest.strip_prefix(' ') {
                let word = &next[..next.find(ends).unwrap_or(next.len())];
                if !word.contains(is_slash) || word.starts_with(is_slash) {
                    break;
                }
                last = word;
                rest = &next[word.len()..];
            }
            out.push_str(last.trim_end_matches(is_slash).rsplit(is_slash).next().unwrap_or(""));
        } else {
            out.push_str(word);
        }
        if let Some(c) = rest.chars().next() {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_texts_become_their_last_component() {
        for (text, bare) in [
            ("aten::mm", "aten::mm"),
            ("loading /home/alice/secret/x.bin now", "loading x.bin now"),
            ("{'ckpt': '/home/alice/secret/'}", "{'ckpt': 'secret'}"),
            ("f (/home/alice/a.py:12)", "f (a.py:12)"),
            ("C:\\Users\\alice\\a.py", "C:a.py"),
            ("~alice/a.py", "a.py"),
            ("/home/alice/my data/x.bin and /tmp/y", "x.bin and y"),
            ("<eval_with_key>.3 from /home/alice/a.py:3 in f", "<eval_with_key>.3 from a.py:3 in f"),
            ("/", ""),
            ("grüße/ß", "ß"),
        ] {
            assert_eq!(text_without_paths(text), bare, "{text}");
        }
        assert_eq!(file("/opt/py/site-packages/torch/nn/module.py"), "torch/nn/module.py");
        assert_eq!(file("/home/alice/my data/train.py"), "train.py");
    }
}
