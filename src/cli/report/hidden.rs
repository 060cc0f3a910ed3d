//! Filters every text of a report before it is written.

use std::path::Path;

use super::Report;
use vramscope_core::formats::export::redact::text_without_paths;
use vramscope_core::units::{capital, shown};

/// Longest text, in characters. No sentence of vramscope and no sensible name is longer.
const LONGEST: usize = 3_000;

/// Shows characters that could control a terminal or a page (escape codes, direction marks), cuts long texts and, with redaction,
/// removes paths, the file's name, and the names of hosts, users and commands in the recording.
#[derive(Clone, Debug)]
pub struct Hidden {
    is_on: bool,
    longest: usize,
    /// Words and their replacements, longest first, so that no part of a longer name remains.
    words: Vec<(String, String)>,
}

impl Hidden {
    /// Hides only control characters.
    #[cfg(test)]
    pub(super) fn nothing() -> Self {
        Hidden { is_on: false, longest: LONGEST, words: Vec::new() }
    }

    /// The same with shorter texts: each step halves them.
    pub(super) fn shorter(&self, steps: u32) -> Self {
        Hidden { longest: (LONGEST >> steps).max(40), ..self.clone() }
    }

    /// For a file about which nothing else is known.
    pub(super) fn of_file(is_on: bool, path: &Path) -> Self {
        let mut hidden = Hidden { is_on, longest: LONGEST, words: Vec::new() };
        hidden.hide(&path.display().to_string(), "the recording");
        hidden.hide(&path.file_name().unwrap_or_default().to_string_lossy(), "the recording");
        hidden.finish()
    }

    pub(super) fn of(is_on: bool, report: &Report) -> Self {
        let path = std::path::PathBuf::from(&report.summary.file);
        let mut hidden = Hidden::of_file(is_on, &path);
        hidden.hide(&report.recording.source.name, "the recording");
        for w in report.summary.devices.iter().filter_map(|d| d.watched.as_ref()) {
            for p in &w.processes {
                hidden.hide(&p.command, "a program");
                hidden.hide(&p.user, "a user");
                hidden.hide(p.container.as_deref().unwrap_or_default(), "a container");
            }
        }
        for (text, instead) in report.about.iter().flat_map(|a| a.names()) {
            hidden.hide(&text, instead);
        }
        hidden.finish()
    }

    fn hide(&mut self, text: &str, instead: &str) {
        // Replacing one or two letters would destroy other text.
        if text.chars().count() > 2 {
            self.words.push((text.to_owned(), instead.to_owned()));
        }
    }

    fn finish(mut self) -> Self {
        self.words.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        self.words.dedup();
        self
    }

    /// True with redaction.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// The filtered text.
    pub fn say(&self, text: &str) -> String {
        let mut text = match text.char_indices().nth(self.longest) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text.to_owned(),
        };
        if self.is_on {
            for (word, instead) in &self.words {
                let begins = text.starts_with(word.as_str());
                text = text.replace(word, instead);
                if begins {
                    text = capital(&text);
                }
            }
            text = text.lines().map(text_without_paths).collect::<Vec<_>>().join("\n");
        }
        shown(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_that_began_with_a_name_begins_with_a_capital() {
        let hidden = Hidden::of_file(true, Path::new("/home/me/run.pickle"));
        assert_eq!(hidden.say("run.pickle: nothing stands out."), "The recording: nothing stands out.");
        assert_eq!(hidden.say("each step of run.pickle"), "each step of the recording");
    }
}
