//! `vramscope guide`: a page for AI agents.

use std::io::Write;

/// The page. A test checks every command and option that it names against the command line.
pub const GUIDE: &str = include_str!("guide.md");

/// Prints the page.
pub fn run(out: &mut dyn Write) -> Result<(), String> {
    super::print(out, GUIDE)
}
