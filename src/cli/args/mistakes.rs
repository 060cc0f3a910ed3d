//! What is wrong with a command line, in one sentence.

use std::path::PathBuf;

use clap::CommandFactory;

use super::Args;

/// What is wrong with the command line in one sentence: the parser's first paragraph, without its tips and usage.
#[must_use]
pub fn one_sentence(message: &str) -> String {
    let first: Vec<&str> = message.lines().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
    let text = first.join(" ");
    format!("{} (vramscope --help tells what can be typed)", text.strip_prefix("error: ").unwrap_or(&text))
}

/// What is wrong with words that were taken for files: one that is no file, and looks more like a command than like a path.
#[must_use]
pub fn not_files(files: &[PathBuf]) -> Option<String> {
    // "-" is a session on standard input.
    let word = files.iter().filter(|f| !f.exists() && f.as_os_str() != "-").find_map(|f| {
        let text = f.to_str()?;
        (!text.contains(['/', '\\'])).then_some(text)
    })?;
    let commands: Vec<String> = Args::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let nearest = commands.iter().map(|c| (edits(word, c), c)).min().filter(|(n, c)| *n <= c.len().div_ceil(3));
    Some(match nearest {
        Some((_, command)) => format!("there is no command and no file called \"{word}\"; did you mean \"vramscope {command}\"?"),
        None => format!("\"{word}\" is neither a file nor a command; vramscope --help lists the commands"),
    })
}

/// How many letters have to be added, left out, changed or swapped with their neighbour to make one word of the other.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
