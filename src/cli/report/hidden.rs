//! What may be told: every text of a report passes here before it is written.

use std::path::Path;

use super::Report;
use vramscope_core::formats::export::redact::text_without_paths;
use vramscope_core::units::{capital, shown};

/// Maximum number of characters of one text. No sentence of vramscope is this long, and no sensible name is.
const LONGEST: usize = 3_000;

/// Shows what would steer a reader's terminal or page (escapes, marks of direction), cuts what is too long, and with redaction leaves
/// out paths, the file's name, and names of hosts, users and commands that the recording tells.
#[derive(Clone, Debug)]
pub struct Hidden {
    is_on: bool,
    longest: usize,
    /// Words and their replacements, longest first, so that no part of a name stays.
    words: Vec<(String, String)>,
}

impl Hidden {
    /// Hides nothing but what steers.
    #[cfg(test)]
    pub(super) fn nothing() -> Self {
        Hidden { is_on: false, longest: LONGEST, words: Vec::new() }
    }

    /// The same with shorter texts: half as long for each step.
    pub(super) fn shorter(&self, steps: u32) -> Self {
        Hidden { longest: (LONGEST >> steps).max(40), ..self.clone() }
    }

    /// For a file without anything else known about it.
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
        // Of one or two letters too much else would go.
        if text.chars().count() > 2 {
            self.words.push((text.to_owned(), instead.to_owned()));
        }
    }

    fn finish(mut self) -> Self {
        self.words.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        self.words.dedup();
        self
    }

    /// True where redaction was asked for.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// A text as it may be told.
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
