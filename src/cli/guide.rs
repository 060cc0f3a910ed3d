//! `vramscope guide`: a page for people's own agents.

use std::io::Write;

/// The page. A test of the program holds every command and option that it names to the command line.
pub const GUIDE: &str = include_str!("guide.md");

/// Prints the page.
pub fn run(out: &mut dyn Write) -> Result<(), String> {
    super::print(out, GUIDE)
}
