//! Explains mistakes in a command line in one sentence.

use crate::cli::opening::is_a_folder;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use vramscope_core::units::{nearest, shown};

use super::{Args, Command, ExportFormat, ScreenshotArgs};

/// Parses the words of a command line, the program's name first.
///
/// `--conf` of `whatif` takes all following words as settings, except that a file among them is taken as the recording. The error
/// is clap's; help and version are returned as errors too.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    if words.get(1).is_some_and(|w| w == "whatif")
        && let Some(file) = (2..words.len()).find(|&i| is_taken_for_a_setting(&words, i))
    {
        let file = words.remove(file);
        words.insert(2, file);
    }
    Args::try_parse_from(words)
}

/// True for a word among the values of `--conf` that is a file. The first word is always a setting, even if a file has that name.
fn is_taken_for_a_setting(words: &[OsString], at: usize) -> bool {
    let option = (2..at).rev().find_map(|i| {
        let word = words.get(i)?.to_string_lossy();
        word.starts_with("--").then(|| (i, word.into_owned()))
    });
    let behind = match option {
        Some((i, word)) if word == "--conf" => at > i + 1,
        Some((i, word)) if word.starts_with("--conf=") => at > i,
        _ => false,
    };
    behind && words.get(at).is_some_and(|w| Path::new(w).is_file())
}

/// One sentence on why clap refused a command line. An unknown command is reported before the options that clap stumbles over
/// because of it.
pub fn refused(error: &clap::Error, words: &[OsString]) -> String {
    // clap removes escape codes from its message together with nearby letters, so it parses again without them.
    let plain: Vec<OsString> = words.iter().map(|w| shown(&w.to_string_lossy()).into_owned().into()).collect();
    let again = if plain == words { None } else { read(plain.iter().cloned()).err() };
    let (error, words) = again.as_ref().map_or((error, words), |error| (error, &plain[..]));
    let first = words.get(1).filter(|w| !w.to_string_lossy().starts_with('-')).map(PathBuf::from);
    let is_command = |word: &PathBuf| Args::command().get_subcommands().any(|c| Some(c.get_name()) == word.to_str());
    first.filter(|word| !is_command(word)).and_then(|word| not_files(&[word])).unwrap_or_else(|| {
        let own = || query_without_where(error, words).or_else(|| check_without_limit(error, words));
        own().or_else(|| missing(error, words)).unwrap_or_else(|| {
            let text = in_our_words(error.to_string());
            match (is_of_query(error), meant(error)) {
                (true, _) => first_paragraph(&text, "vramscope allocations --help describes queries"),
                (false, Some(meant)) => first_paragraph(&text, &format!("did you mean {meant}?")),
                (false, None) => one_sentence(&text),
            }
        })
    })
}

/// Replaces messages of libraries for numbers that do not fit.
fn in_our_words(mut text: String) -> String {
    for (theirs, ours) in [
        ("invalid digit found in string", "write a whole number"),
        ("cannot parse integer from empty string", "write a whole number"),
        ("number too large to fit in target type", "the number is too large"),
        ("number too small to fit in target type", "the number is too small"),
    ] {
        text = text.replace(theirs, ours);
    }
    // `0 is not in 1..=1000`, where an end that is the type's own is left out.
    let Some((before, range)) = text.split_once(" is not in ") else { return text };
    let (range, behind) = range.split_at(range.find(|c: char| !"0123456789.=-".contains(c)).unwrap_or(range.len()));
    let Some((least, most)) = range.split_once("..") else { return text };
    let most = most.trim_start_matches('=');
    // Where the end is only that of the type, it says nothing to the user.
    let is_end = |end: &str| {
        [i64::from(u16::MAX), i64::from(u32::MAX), i64::from(i32::MAX), i64::MAX].iter().any(|n| n.to_string() == end)
    };
    if !most.is_empty() && !is_end(most) {
        return format!("{before} is no number from {least} to {most}{behind}");
    }
    match before.rsplit_once(": ") {
        Some((option, typed)) if !typed.starts_with('-') && typed != "0" => format!("{option}: the number is too large{behind}"),
        _ => format!("{before} is no number of {least} or more{behind}"),
    }
}

/// True when the first word is neither an option, a command nor a file, so that `--help` after it asks about nothing.
pub fn is_no_command(words: &[OsString]) -> bool {
    let Some(word) = words.get(1).filter(|w| !w.to_string_lossy().starts_with('-')) else { return false };
    let is_command = *word == "help" || Args::command().get_subcommands().any(|c| Some(c.get_name()) == word.to_str());
    !is_command && not_files(&[PathBuf::from(word)]).is_some()
}

/// The mistake of a query that was typed in place of a file.
fn query_without_where(error: &clap::Error, words: &[OsString]) -> Option<String> {
    if error.kind() != clap::error::ErrorKind::UnknownArgument || words.get(1)? != "allocations" {
        return None;
    }
    let is_query = |w: &&str| !w.starts_with('-') && w.contains(['=', '<', '>', '~', '@']);
    let query = words.iter().skip(3).filter_map(|w| w.to_str()).find(is_query)?;
    Some(format!("\"{query}\" is a query: write --where \"{query}\""))
}

/// The mistake of `check` without a limit.
fn check_without_limit(error: &clap::Error, words: &[OsString]) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    let is_limit = |argument: &String| argument.contains("--max-peak <BYTES>|");
    let is_of_limits =
        matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::Strings(missing)) if missing.iter().any(is_limit));
    (is_of_limits && words.get(1)? == "check").then(|| {
        "check needs to know what to check: name a limit, as in --max-peak 60GiB, --max-allocated 40GiB, --max-role activations=4GiB or \
         --max-fragmentation 0.1, or --baseline OLD.pickle, --no-leaks, --no-oom or --stats FILE (vramscope check --help tells of each)"
            .to_owned()
    })
}

/// Missing arguments of a command, and how to write them.
fn missing(error: &clap::Error, words: &[OsString]) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return None };
    let command = words.get(1)?.to_str()?;
    let bare = |text: &str| text.replace(['<', '>'], "");
    let needs = match command {
        // `diff` names its arguments with single letters, which explain nothing.
        "diff" if missing.len() > 1 => "two recordings".to_owned(),
        "diff" => "a second recording".to_owned(),
        _ => missing.iter().map(|m| bare(m).replace("...", "")).collect::<Vec<_>>().join(" and "),
    };
    // An option that another option requires. The command's usage would not help.
    let is_asked_for = |m: &String| m.starts_with("--") && !["--at", "--to"].iter().any(|own| m.starts_with(own));
    if missing.iter().all(is_asked_for) {
        return Some(format!("{command} needs {needs} as well (vramscope {command} --help tells more)"));
    }
    let written = match command {
        "diff" => {
            "vramscope diff A.pickle B.pickle, or for two instants of one recording vramscope diff A.pickle --a-event N --b-event M".to_owned()
        }
        "plan" => "vramscope plan FILE --at batch=8, with the size that FILE was run at".to_owned(),
        _ => {
            let usage = error.to_string();
            bare(usage.lines().find_map(|line| line.trim().strip_prefix("Usage: "))?)
        }
    };
    Some(format!("{command} needs {needs}: write {written} (vramscope {command} --help tells more)"))
}

/// Mistakes in a command line that clap accepts.
pub fn misused(command: &Command) -> Option<String> {
    if let Command::Export(export) = command
        && let Some(sentence) = export.option_without_effect()
    {
        return Some(sentence);
    }
    let files: &[PathBuf] = match command {
        Command::Summary(a) => &a.files,
        Command::State(a) => std::slice::from_ref(&a.file),
        Command::Oom(a) => std::slice::from_ref(&a.file),
        Command::Whatif(a) => std::slice::from_ref(&a.file),
        Command::Findings(a) => std::slice::from_ref(&a.file),
        Command::Allocations(a) => std::slice::from_ref(&a.file),
        Command::Leaks(a) => std::slice::from_ref(&a.of.file),
        Command::Report(a) => std::slice::from_ref(&a.file),
        Command::Flame(a) => std::slice::from_ref(&a.file),
        Command::Plan(a) => &a.files,
        Command::Doctor(a) => &a.files,
        Command::Explain(a) => a.file.as_slice(),
        Command::Check(a) => {
            return [Some(&a.file), a.baseline.as_ref()]
                .into_iter()
                .flatten()
                .find(|file| file.is_dir())
                .map(|folder| is_a_folder(folder));
        }
        // The tables of many recordings form one data set.
        Command::Export(a) if a.to.of_tables().is_some() => &[],
        Command::Export(a) if matches!(a.to, ExportFormat::Svg | ExportFormat::Png) => {
            return not_of_this(&a.file, a.view.as_deref().unwrap_or(WHOLE));
        }
        Command::Export(a) => std::slice::from_ref(&a.file),
        Command::Screenshot(a) => {
            let subject = a.paths.first().filter(|_| a.paths.len() > 1);
            return wrong_picture(a).or_else(|| not_of_this(subject?, &a.view));
        }
        Command::Diff(a) => {
            return std::iter::once(&a.a).chain(&a.b).find(|file| file.is_dir()).map(|folder| is_a_folder(folder));
        }
        _ => &[],
    };
    files.iter().find(|file| file.is_dir()).map(|folder| is_a_folder(folder))
}

/// The workspace that is drawn by default. For a folder it is the ranks page.
const WHOLE: &str = "overview";

/// A folder can only be drawn as the ranks page, and the ranks page needs a folder.
fn not_of_this(subject: &Path, view: &str) -> Option<String> {
    let path = subject.display();
    match (subject.is_dir(), view) {
        (true, "ranks" | WHOLE) => None,
        (true, _) => Some(format!(
            "{path}: this is a folder; --view ranks draws what the recordings in it say together; for {view} name one of its files"
        )),
        (false, "ranks") => Some(format!("{path} is no folder: --view ranks draws a folder of recordings; name the folder")),
        (false, _) => None,
    }
}

/// Refuses a picture whose format does not match its name, because it would not open elsewhere.
fn wrong_picture(a: &ScreenshotArgs) -> Option<String> {
    let out = a.paths.last()?;
    let wanted = if a.is_svg { "svg" } else { "png" };
    let ending = out.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    if ending == wanted {
        return None;
    }
    let out = out.display();
    if a.paths.len() == 1 {
        return Some(format!("the picture to write is missing: vramscope screenshot {out} picture.{wanted}"));
    }
    Some(match ending.as_str() {
        "svg" => format!("{out}: add --svg for a picture of lines and text"),
        "png" => format!("{out}: --svg writes lines and text; name a file ending in .svg, or leave --svg out"),
        _ => format!("{out}: only PNG is written here, and SVG with --svg; name a file ending in .{wanted}"),
    })
}

/// The first paragraph of clap's message as one sentence, without tips and usage.
pub fn one_sentence(message: &str) -> String {
    let is_command = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase());
    let usage = message.lines().find_map(|line| line.trim().strip_prefix("Usage: vramscope "));
    match usage.and_then(|usage| usage.split(' ').next()).filter(is_command) {
        Some(command) => first_paragraph(message, &format!("vramscope {command} --help lists its options")),
        None => first_paragraph(message, "vramscope --help lists commands and options"),
    }
}

/// True when the query of `--where` does not parse.
fn is_of_query(error: &clap::Error) -> bool {
    use clap::error::{ContextKind, ContextValue};
    matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg.starts_with("--where"))
}

/// The option or value most similar to what was typed, as suggested by clap.
fn meant(error: &clap::Error) -> Option<&str> {
    use clap::error::{ContextKind, ContextValue};
    [ContextKind::SuggestedArg, ContextKind::SuggestedValue].into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(meant) => Some(meant.as_str()),
        ContextValue::Strings(meant) => meant.first().map(String::as_str),
        _ => None,
    })
}

fn first_paragraph(message: &str, help: &str) -> String {
    let first: Vec<&str> = message.lines().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
    let text = first.join(" ");
    format!("{} ({help})", text.strip_prefix("error: ").unwrap_or(&text))
}

/// The mistake of a word in place of a file that does not exist and looks more like a command than a path.
pub fn not_files(files: &[PathBuf]) -> Option<String> {
    // "-" is a session on standard input. "help" comes before the wrong word.
    let known = |f: &Path| f.exists() || f.as_os_str() == "-" || f.as_os_str() == "help";
    let word = files.iter().filter(|f| !known(f)).find_map(|f| {
        let text = f.to_str()?;
        (!text.contains(['/', '\\'])).then_some(text)
    })?;
    // Common names for commands that are called differently here.
    const OTHER_NAMES: [(&str, &str); 5] =
        [("event", "allocations"), ("events", "allocations"), ("compare", "diff"), ("analyze", "findings"), ("ooms", "oom")];
    if let Some((_, command)) = OTHER_NAMES.iter().find(|(other, _)| *other == word) {
        return Some(format!("there is no command and no file called \"{word}\"; \"vramscope {command}\" answers that"));
    }
    let commands: Vec<String> = Args::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    Some(match nearest(word, commands.iter().map(String::as_str)) {
        Some(command) => format!("there is no command and no file called \"{word}\"; did you mean \"vramscope {command}\"?"),
        None => format!("\"{word}\" is neither a file nor a command; vramscope --help lists the commands"),
    })
}
