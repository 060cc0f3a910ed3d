//! The user's role rules on the command line: `--rules FILE`, or those of the window.

use std::path::{Path, PathBuf};

use clap::Args;

use vramscope_core::anatomy::roles::{Rules, rules_from_text, rules_path};

/// The option of every subcommand that shows roles.
#[derive(Clone, Debug, Default, Args)]
pub struct RulesArgs {
    /// Your own rules for roles, as JSON; those of the window's dialog when absent, "none" for none
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
}

impl RulesArgs {
    /// Fails like [`read`](Self::read) when the user named a file of rules, for commands that do not always need rules.
    pub fn check_named(&self) -> Result<(), String> {
        if self.rules.is_some() { self.read().map(drop) } else { Ok(()) }
    }

    /// Reads the rules. The window's own file may be missing. Fails with one sentence that names the file, the rule and the
    /// mistake.
    pub fn read(&self) -> Result<Rules, String> {
        match &self.rules {
            Some(path) if path == Path::new("none") => Ok(Rules::default()),
            Some(path) => read(path),
            None => match rules_path().filter(|path| path.exists()) {
                Some(path) => read(&path).map_err(|e| format!("{e} (--rules none does without)")),
                None => Ok(Rules::default()),
            },
        }
    }
}

fn read(path: &Path) -> Result<Rules, String> {
    let named = |e: String| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| {
        named(format!(
            "the rules cannot be read: {}; name a file of rules after --rules, or none",
            match e.kind() {
                std::io::ErrorKind::InvalidData => "this is no text".to_owned(),
                _ => vramscope_core::formats::why(&e),
            }
        ))
    })?;
    let (rules, errors) = Rules::new(&rules_from_text(&text).map_err(|e| named(e.to_string()))?);
    match errors.into_iter().next() {
        Some(error) => Err(named(error.to_string())),
        None => Ok(rules),
    }
}
