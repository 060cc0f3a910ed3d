//! Decides whether a text reports a failure or only mentions one: code, patterns, advice and changelogs contain the same words.

use super::prefix::stripped;
use super::row::Trust;
use super::signs::{tells, told, words};
use super::text::{Window, clamped, contains, has, looks_like};

/// Lines above and below an error in which a text may explain it.
const AROUND_EXPLAINED: (usize, usize) = (8, 3);

/// Characters that open an argument, a list or a value in code, before a quoted text.
const OPENS: [char; 7] = ['(', '{', '[', '=', '+', '<', ','];
/// Characters that may follow the quoted text.
const CLOSES: [char; 7] = [')', '}', ']', ',', ';', '+', '<'];

/// True for words in code, patterns, guides and changelogs, whatever they would prove elsewhere.
pub(super) fn is_mentioned(window: &Window<'_>, words: &str, has_figures: bool) -> bool {
    is_literal(window, words)
        || is_identifier(window, words)
        || is_wording(window)
        || !has_figures && is_in_remarks(window)
        || is_alert_rule(window)
        || is_patch(window)
        || is_other_error(window)
        || halves(window, words).is_some_and(|(before, after)| {
            let is_noted = || is_noted(window, &before, &after) || !has_figures && is_release_note(window, &before, &after);
            let is_told = !tells("first person", &before) && (is_noted() || is_catalogue(window));
            tells("quotes code", &before)
                || is_told
                || !has_figures && (is_question(&before, &after) || is_option(window))
                || if has_figures { is_quoted(window, words) } else { is_element(&before, &after) }
        })
}

/// True in a guide that explains the error at length, with an example of it.
pub(super) fn is_guide(window: &Window<'_>) -> bool {
    let around = window.around(GUIDE, GUIDE).to_ascii_lowercase();
    let around = if around.is_ascii() { around } else { around.replace('’', "'") };
    // Pages that rate their advice do so at each item.
    let is_rated = || around.matches("% success)").count() > 1;
    told("guide", &around).nth(1).is_some() || contains(&around, "% success)") && is_rated()
}

/// True for a text that code names or throws, in the line or above it: `MESSAGES = [`, `error = Error("`. JSON has its names in quotes.
pub(super) fn is_in_code(window: &Window<'_>) -> bool {
    let is_quoted = |line: &str| line.trim_start().trim_start_matches(['r', 'f', 'b', 'u']).starts_with(['"', '\'', '`']);
    let line = window.raw_line();
    if !is_quoted(line) {
        let is_call =
            || looks_like!(r"^\s*(?:[A-Za-z_][A-Za-z0-9_]* = |raise |throw new )[A-Za-z_][A-Za-z0-9_.]*\([\x22']", line);
        return line.len() <= LONG && line.trim_end().trim_end_matches(';').ends_with(')') && is_call();
    }
    let opens = window.around(COMMENT, 0).lines().rev().find(|line| !is_quoted(line));
    let is_open = |line: &str| {
        [" = (", " = [", " = {", " ="].iter().any(|end| line.ends_with(end)) || line.contains("new ") && line.ends_with('(')
    };
    opens.is_some_and(|line| is_open(line.trim_end()))
}

/// True in source code: the words are in a line of it, and so are the lines around it. A size in place of a variable was printed.
pub(super) fn is_source(window: &Window<'_>) -> bool {
    let line = window.raw_line();
    if line.len() > LONG || !is_of_source(line) || looks_like!(r"\d ?[KMG]i?B", line) {
        return false;
    }
    let is_told = |line: &&str| !line.trim().is_empty();
    let above: Vec<&str> = window.around(SOURCE, 0).lines().rev().filter(is_told).collect();
    let below: Vec<&str> = window.around(0, SOURCE).lines().skip(1).filter(is_told).collect();
    let nearest = above.get(1).into_iter().chain(below.first());
    nearest.copied().all(is_of_source) && above.iter().chain(&below).filter(|line| is_surely_source(line)).count() > 1
}

/// Lines above and below that show whether a line is one of source code.
const SOURCE: usize = 3;

/// True for a line that may be one of source code in a common language.
fn is_of_source(line: &str) -> bool {
    let line = line.trim();
    is_surely_source(line)
        || line.ends_with(['{', '}', '(', ',', '+', '\\', '[', ']'])
        || "return |raise |assert |if |else |@|import |from |try|]|)".split('|').any(|word| line.starts_with(word))
        || contains(line, "= ")
            && looks_like!(r"^(?:[A-Za-z_][A-Za-z0-9_:<>&*, ]* )?[A-Za-z_][A-Za-z0-9_.>\[\]-]* [-+|]?= \S", line)
}

/// True for a line that nothing but source code has.
fn is_surely_source(line: &str) -> bool {
    let line = line.trim();
    const BLOCKS: &str =
        "if |for |while |with |try|else|elif |except|finally|def |class |func |fn |pub |impl |struct |enum |switch ";
    let begins = |heads: &str| heads.split('|').any(|head| line.starts_with(head));
    ";|*/|) {|\"\"\"".split('|').any(|end| line.ends_with(end))
        || begins("//|/*|#include|#define")
        || has(line, " // | ///")
        || line.ends_with([':', '{']) && begins(BLOCKS)
}

/// Lines above and below an example that a guide explains.
const GUIDE: usize = 16;

/// True for an error of Python's of another kind, which only names one of memory: `KeyError: 'out of memory'`, and for the title of an issue
/// in a list of them.
fn is_other_error(window: &Window<'_>) -> bool {
    let line = window.raw_line().trim_start();
    // pytest begins the lines of an error with a letter.
    let line = line.strip_prefix("E  ").map_or(line, str::trim_start);
    looks_like!(
        r"^(?:ImportError: cannot import name|AssertionError: expected|(?:ModuleNotFound|Key|Attribute|Name|Syntax|Type|Index|FileNotFound)Error:|[-*] #\d+) ",
        line
    )
}

/// True for an example of an error. With all figures of a card it is one only in a list, or in quotes: a report may begin with "the output:" too.
pub(super) fn is_shown(window: &Window<'_>, words: &str, has_a_card: bool) -> bool {
    is_example(window).is_some_and(|line| !has_a_card || is_in_list(window) || tells("typical", &line))
        || halves(window, words).is_some_and(|(before, _)| is_quoted_example(&before))
}

/// The line that introduces an example: the one above, or the first one above the list that it is in: `a line such as:`.
fn is_example(window: &Window<'_>) -> Option<String> {
    let is_in_list = is_in_list(window);
    let above = window.around(EXAMPLE, 0).to_ascii_lowercase();
    let skipped = |line: &&str| line.is_empty() || line.starts_with("```") || (is_in_list && is_listed(line));
    let lines = || above.lines().rev().skip(1).map(str::trim);
    let is_end = |line: &str| line.ends_with(':') || line.ends_with("following.");
    let is_told = |line: &&str| is_end(line) && tells("introduces", line) && !tells("first person", line);
    // Of an example of several lines, above the first one.
    let of_lines = || lines().skip_while(|line| !line.is_empty()).find(|line| !skipped(line)).filter(is_told);
    lines().find(|line| !skipped(line)).filter(is_told).or_else(of_lines).map(str::to_owned)
}

/// Lines above an example that may introduce it.
const EXAMPLE: usize = 8;

/// True for words in quotes behind what says that they may come: ``if you see `ValueError: …` ``.
fn is_quoted_example(before: &str) -> bool {
    let is_open = ['`', '"'].iter().any(|&quote| before.matches(quote).count() % 2 == 1);
    is_open && tells("may come", before) && !tells("first person", before)
}

/// True for a line of a patch, which is code or documentation: a changed one, or one beside it.
fn is_patch(window: &Window<'_>) -> bool {
    let (above, line) = (window.around(COMMENT, 0), window.raw_line());
    let mut hunk = above.lines().rev().take_while(|line| line.starts_with([' ', '+', '-', '@']));
    // Indented code or text behind the sign.
    let is_indented = || line.get(1..).is_some_and(|rest| rest.starts_with("    "));
    line.starts_with(['+', '-']) && (is_indented() || has(above, "\n@@ -|\ndiff --git |```diff"))
        || hunk.any(|line| line.starts_with("@@ -"))
}

/// True for words that are joined in a name of code, `isCudaOutOfMemory(`, other than an error's: `OutOfMemoryError`.
fn is_identifier(window: &Window<'_>, words: &str) -> bool {
    let joined = words.replace(' ', "");
    let (own, rest) = window.own().text.split_at_checked(joined.len()).unwrap_or(("", ""));
    let has_humps = || own.as_bytes().windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    joined.len() < words.len()
        && has_humps()
        && !rest.starts_with("Err")
        && !rest.starts_with("Exc")
        && window.raw_line().contains(own)
}

/// True in the middle of a comment of several lines, as scripts have them.
fn is_in_remarks(window: &Window<'_>) -> bool {
    let around = window.around(1, 1);
    around.lines().count() > 2 && around.lines().all(|line| line.trim_start().starts_with("# "))
}

/// True for one of several wordings of an error that stand below each other in quotes, as code lists them.
fn is_wording(window: &Window<'_>) -> bool {
    let is_element = |line: &str| {
        let text = line.trim().strip_suffix(',').and_then(|line| line.strip_suffix(['"', '\'']));
        text.is_some_and(|text| text.starts_with(['"', '\'']) && !text.ends_with("\\n"))
    };
    let names =
        |line: &str| is_element(line) && has(&line.to_ascii_lowercase(), "out of memory|out_of_memory|failed to allocate");
    let line = window.raw_line();
    line.len() <= LONG
        && is_element(line)
        && window.around(1, 1).lines().any(|other| other != line.trim_end_matches('\n') && names(other))
}

/// True inside a rule of Prometheus, which says when to warn of a failure.
fn is_alert_rule(window: &Window<'_>) -> bool {
    let around = window.around(ALERT.0, ALERT.1);
    let has = |key: &str| around.lines().any(|line| line.trim_start_matches(['-', ' ']).starts_with(key));
    has("expr:") && (has("alert:") || has("annotations:"))
}

/// Lines above and below a line of an alert rule in which its keys stand.
const ALERT: (usize, usize) = (16, 12);

/// True for an element of a list of texts, or a key of a dictionary of them.
fn is_element(before: &str, after: &str) -> bool {
    ['"', '\''].into_iter().filter_map(|quote| before.rsplit_once(quote).zip(after.split_once(quote))).any(
        |((opens, kind), (inside, closes))| {
            // A notebook stores the lines that a cell printed as such a list.
            let is_listed = opens.trim().is_empty() && closes.trim() == "," && !inside.ends_with("\\n")
                || ["-", "*"].contains(&opens.trim()) && closes.trim().is_empty();
            is_listed && !kind.contains("error:") || closes.starts_with(": \"") || closes.starts_with(": '")
        },
    )
}

/// True for an item of a list: `- `, `2. `.
fn is_in_list(window: &Window<'_>) -> bool {
    is_listed(window.raw_line())
}

fn is_listed(line: &str) -> bool {
    looks_like!(r"^\s*(?:[-*+•]|\d+\. )", line)
}

/// True for an entry of a changelog that quotes the words and says what became of them.
fn is_noted(window: &Window<'_>, before: &str, after: &str) -> bool {
    let quoted = ['`', '"'].into_iter().find(|quote| before.matches(*quote).count() % 2 == 1);
    let outside = quoted.and_then(|quote| Some([before.rsplit_once(quote)?.0, after.split_once(quote)?.1].concat()));
    is_in_list(window) && outside.is_some_and(|text| tells("changed", &text))
}

/// True for an entry of a changelog without quotes: `Fixed in 0.9.2: …`, `- exit code 137 is now reported`.
fn is_release_note(window: &Window<'_>, before: &str, after: &str) -> bool {
    let first = before.trim_start_matches(|c: char| !c.is_alphanumeric());
    let is_past = ["fixed ", "fixes "].iter().any(|word| first.starts_with(word));
    is_past
        || is_in_list(window) && is_among_changes(window)
        || is_in_list(window)
            && [" is now ", " are now ", " no longer "]
                .iter()
                .any(|words| [before, after].iter().any(|part| part.contains(words)))
}

/// True in a list of changes: `- Fix …`, `- Add …`.
fn is_among_changes(window: &Window<'_>) -> bool {
    let is_change = |line: &str| looks_like!(r"^\s*[-*+•] (?:\x60?[\w.]+\x60?: )?((?:[Ff]ix|[Aa]dd)(?:es|ed|s)?) ", line);
    // An error in a list of what was tried is one.
    !has(window.raw_line(), "Error: |Exception: |error: ")
        && window.around(2, 2).lines().filter(|line| is_change(line)).count() > 1
}

/// True if the sentence that has the words asks about them, and does not tell that they happened.
fn is_question(before: &str, after: &str) -> bool {
    let ends = |c: char| matches!(c, '.' | '?' | '!');
    let (begin, end) = (before.rsplit(ends).next().unwrap_or(""), after.find(ends).unwrap_or(after.len()));
    let (rest, sign) = after.split_at(end);
    let is_told = |part: &str| tells("first person", part) || tells("happened", part);
    sign.starts_with('?') && !before.contains("error:") && !is_told(begin) && !is_told(rest)
}

/// True for an option that a program lists with what it does.
fn is_option(window: &Window<'_>) -> bool {
    looks_like!(r"^\s*(?:-[A-Za-z], )?(--[a-z][a-z-]+) .*\S", window.raw_line())
}

/// True if the words are a quoted text in source code: `errors.New("out of memory")`, `{"out of memory", true},`.
fn is_literal(window: &Window<'_>, words: &str) -> bool {
    let line = window.raw_line();
    if line.len() > LONG {
        return false;
    }
    if has_placeholder(line) {
        return true;
    }
    // A program's own error, which may quote what its parts report: `Error: Warmup(Generation("..."))`, an error of Rust's.
    if line.starts_with("Error: ") || looks_like!(r"(?:rror:?|value:) \x60?\w+\([A-Z_]{8,}, \x22", line) {
        return false;
    }
    // A line of code that names the error: `isinstance(e, OutOfMemoryError)`, `OOM_ERRORS = (…)`, a test in Julia, `{ key: "…" },`.
    if looks_like!(r"\bisinstance\(|^\s*[A-Za-z_][A-Za-z0-9_]* = \(|^\s*@test|['\x22] \},\s*$", line) {
        return true;
    }
    // A value of a dictionary that code hands to a function: `logs.append({`.
    if line.trim_start().starts_with('"') && window.around(12, 0).lines().any(|above| above.trim_end().ends_with("({")) {
        return true;
    }
    // A comment in indented code, or one beside a line of code.
    let is_comment = line.trim_start().starts_with(['#', ';']);
    if is_comment && (line.starts_with("    ") || window.around(2, 2).lines().any(is_code_line)) {
        return true;
    }
    let line = line.to_ascii_lowercase();
    let Some((before, after)) = split_at(&line, words) else { return false };
    // A JavaScript template literal after its key.
    let is_template = before.rsplit_once('`').is_some_and(|(key, _)| key.trim_end().ends_with(':')) && after.contains("`,");
    let quoted = before.rsplit_once('"').zip(after.split_once('"'));
    let Some(((opens, _), (inside, closes))) = quoted else { return is_template };
    // Prefixes of raw and format strings in Python, C++ or Rust: `r"`, `L"`, `f"`.
    let opens = opens.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    // `message = "…"`, in C++ with a semicolon; logs write `message="…"`.
    let is_value = opens.ends_with(" =") && ["", ";"].contains(&closes.trim());
    // An element of a list of texts, or a longer text that the next line continues.
    let is_listed = window.around(1, 0).lines().next().is_some_and(|line| line.trim_end().ends_with("\","));
    let goes_on = opens.is_empty() && closes.trim().is_empty() && (inside.ends_with(' ') || is_listed);
    goes_on || is_value || opens.ends_with(OPENS) && closes.trim_start().starts_with(CLOSES)
}

/// True for a branch or an assignment in Python, also one in a comment.
fn is_code_line(line: &str) -> bool {
    looks_like!(r"^#? *((?:el)?if .*:|[A-Za-z_][A-Za-z0-9_.]* = \S.*)$", line)
}

/// A line in small letters before and after the words, which may be joined, or after the first of them where they are wrapped.
fn split_at<'a>(line: &'a str, words: &str) -> Option<(&'a str, &'a str)> {
    let words = words.to_ascii_lowercase();
    let joined = words.replace(' ', "");
    [words.as_str(), &joined, words.split(' ').next()?].iter().find_map(|words| line.split_once(words))
}

/// True for `Tried to allocate XX GiB` and `allocate {size} bytes`: a message with letters in place of its figures.
fn has_placeholder(line: &str) -> bool {
    let line = line.trim_end();
    // A letter in place of a number begins a word; most lines have none.
    let begins = |pair: &[u8]| b" (;,".contains(&pair[0]) && b"XYN".contains(&pair[1]);
    let has_letter = || line.starts_with(['X', 'Y', 'N']) || line.as_bytes().windows(2).any(begins);
    line.contains('{') && looks_like!(r"(\{[a-z:][a-z0-9_:,.!]*\})", line)
        || line.contains("shape") && looks_like!(r"(shape ?\x5c?\[\x5c?[*a-z])", line)
        || has_letter() && looks_like!(r"(?:^|[ (;,])([XYN][XYN.]*) ?(?:GiB|MiB|GB|MB|bytes)(?:[)., ;(]|$)", line)
}

/// True if the line explains the words to readers: a guide, a FAQ, documentation.
fn is_explained(window: &Window<'_>, before: &str, after: &str) -> bool {
    let whole = window.around(0, 0).trim_start();
    let before = before.replace('’', "'");
    // A label in a list: `**GPU (CUDA out of memory):** …`.
    let is_label = ["**:", ":**", "):**"].iter().any(|end| after.starts_with(end));
    let full = after;
    let after = after.trim_start_matches(|c: char| c == ' ' || "\"'`*”’).,".contains(c));
    let goes_on = words("goes on").any(|word| after.starts_with(word));
    is_label
        || is_item(window, &before, full)
        || whole.starts_with("##")
        || tells("explained", &before)
        || goes_on
        || before.starts_with("the ") && after.starts_with(char::is_alphabetic)
}

/// True if the lines around the words introduce or explain an error to readers.
fn is_introduced(window: &Window<'_>) -> bool {
    let (above, below) = AROUND_EXPLAINED;
    let around = window.around(above, below).to_ascii_lowercase().replace('’', "'");
    // A condition is of the message right below it, not of a log that begins there.
    let above = window.around(above, 0).to_ascii_lowercase();
    let nearest = above.lines().rev().skip(1).map(str::trim).find(|line| !line.is_empty() && !line.starts_with("```"));
    let is_condition = |line: &str| {
        ["if ", "when you "].iter().any(|word| line.starts_with(word)) && line.ends_with(':') && !tells("first person", line)
    };
    tells("explains", &around)
        || nearest.is_some_and(is_condition)
        || has_heading(&around, "cause|why it happens|原因")
        || is_catalogue(window)
}

/// True if a line of a text in small letters begins with one of these headings: `**Cause**: …`.
fn has_heading(text: &str, headings: &str) -> bool {
    let is_heading = |line: &str, word: &str| {
        let rest = line.trim_matches(|c: char| c == ' ' || "#*_-".contains(c)).strip_prefix(word);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '*', '：']) || rest.starts_with(" ("))
    };
    text.lines().any(|line| headings.split('|').any(|word| is_heading(line, word)))
}

/// Headings below an error that a text explains.
const SOLVES: &str =
    "solution|solutions|cause|causes|common causes|possible causes|likely cause|diagnose|解决|解决方法|解决方案|解决办法|原因";

/// True for a row of a Markdown table that ends with what to do.
fn is_solved_row(line: &str) -> bool {
    let cell = line.trim().strip_prefix('|').and_then(|line| line.trim_end_matches(['|', ' ']).rsplit('|').next());
    let verb = cell.and_then(|cell| cell.trim().split(' ').next()).unwrap_or("");
    ["Lower", "Reduce", "Decrease", "Increase", "Raise", "Use", "Set", "Try", "Check", "Pull", "Switch"].contains(&verb)
}

/// True in a list of errors and what they mean: a row of a Markdown table, or text between the headings "Symptom" and "Solution".
fn is_catalogue(window: &Window<'_>) -> bool {
    let (above, below) = AROUND_EXPLAINED;
    let has_one = |text: &str, headings: &str| has_heading(&text.to_ascii_lowercase(), headings);
    let solves = |text: &str| has_one(text, "solution|solutions|fix");
    if has_one(window.around(above, 0), "symptom|symptoms") && solves(window.around(0, below)) {
        return true;
    }
    // A heading right below the words, or below the paragraph or the block that has them. A process that is named was a real one.
    let is_fence = |line: &str| line.starts_with("```");
    let mut below = window.around(0, below + 2).lines().skip(1).map(str::trim);
    let first = below.clone().next().unwrap_or("");
    let mut rest = below.by_ref().skip_while(|line| !line.is_empty() && !is_fence(line));
    let next = rest.find(|line| !line.is_empty() && !is_fence(line)).unwrap_or("");
    let line = window.raw_line();
    if !line.contains("(pid ") && [first, next].iter().any(|line| has_one(line, SOLVES)) || is_solved_row(line) {
        return true;
    }
    let above = window.around(COMMENT, 0).to_ascii_lowercase();
    let is_row = |line: &&str| line.trim_start().starts_with('|');
    let is_rule = |line: &str| line.contains("--") && line.chars().all(|c| " |-:".contains(c));
    let rows: Vec<&str> = above.trim_end().lines().rev().take_while(is_row).collect();
    let head = rows.iter().position(|line| is_rule(line)).and_then(|at| rows.get(at + 1));
    head.is_some_and(|head| has(head, "cause|mean|fix|solution|remedy|what to do"))
}

/// True for an item of a list that explains its first words, or tells what a release changed.
fn is_item(window: &Window<'_>, before: &str, after: &str) -> bool {
    let marks = |c: char| " -*+•`\"'".contains(c);
    let before = before.trim_matches(marks);
    is_in_list(window)
        && (before.is_empty() && (after.trim_start_matches(marks).starts_with(": ") || after.starts_with("` for "))
            || tells("changed", before.split(' ').next().unwrap_or("")))
}

/// The message's line in small letters, before and after the words; `None` if it is too long.
fn halves(window: &Window<'_>, words: &str) -> Option<(String, String)> {
    let line = window.raw_line();
    let low = (line.len() <= LONG).then(|| line.to_ascii_lowercase())?;
    low.split_once(&words.to_ascii_lowercase()).map(|(before, after)| (before.to_owned(), after.to_owned()))
}

/// True if a text explains an error that did not happen to its writer.
fn is_quoted(window: &Window<'_>, words: &str) -> bool {
    halves(window, words).is_some_and(|(before, after)| !tells("first person", &before) && is_explained(window, &before, &after))
}

/// True if the words stand in a sentence of the writer's, not in an error as a program prints it.
pub(super) fn is_prose(window: &Window<'_>, words: &str) -> bool {
    let in_sentence = |(before, after): (String, String)| {
        (tells("first person", &before) || tells("first person", &after)) && !ends_as_error(&before)
    };
    halves(window, words).is_some_and(in_sentence)
}

/// True for a line of a comment between `/*` and `*/` whose beginning is in the text.
fn is_comment(window: &Window<'_>) -> bool {
    let (above, line) = (window.around(COMMENT, 0), window.raw_line());
    let before = above.trim_end().strip_suffix(line.trim_end()).unwrap_or("");
    let is_open = || before.rfind("/*").is_some_and(|at| !before[at..].contains("*/"));
    (line.trim_start().starts_with('*') || line.contains("*/")) && is_open()
}

/// Number of lines above in which the beginning of a comment is searched.
const COMMENT: usize = 40;
/// Bytes of the line that are examined before and after the words.
const AROUND: usize = 240;
const LONG: usize = 4_000;

/// True if the line that contains the words reports an error that happened.
pub(super) fn is_reported(window: &Window<'_>, anchor: &str, trust: Trust) -> bool {
    let line = window.raw_line();
    // In a line of megabytes examine only the surroundings of the words, without white space.
    let near = [window.before(AROUND).low, clamped(window.after().low, AROUND)].concat();
    let line = if line.len() > LONG { near.as_str() } else { stripped(line).rest.trim() };
    let low = line.to_ascii_lowercase();
    // Wrapped words are in no single line: then the whole rest is examined.
    let (before, after) = split_at(&low, anchor).unwrap_or(("", &low));
    let (before, after) = (tail(before, AROUND), clamped(after, AROUND));
    if trust == Trust::Line {
        let is_error = before.is_empty() || ends_as_error(before) || before.trim_end().ends_with("error");
        let is_told = line.contains(anchor) && is_error && ["", ":"].contains(&after.trim());
        return is_told && !is_introduced(window) && !is_among_names(window) && !is_entry(window) || is_job(before, after);
    }
    let is_alone = |text: &str| text.chars().all(|c| !c.is_alphanumeric());
    // "could not" indicates an error, "could" alone does not.
    let both = [before, " \u{1} ", after].concat().replace("could not", "failed to").replace("cannot", "failed to");
    // An arrow may be code, but `WARNING --> ` is the head of a log's line; so may `raise`, but not before an article.
    let both = both.replace("-->", "").replace("raise an ", "");
    let is_told = || words("told under").any(|key| low.starts_with(key));
    let is_string = line.starts_with(['"', '\'']) && line.ends_with([',', ']', ')']) && !is_told();
    // `Memory = cudaErrorMemoryAllocation` assigns a value to a name.
    let is_value = before.trim_end().ends_with('=') || after.trim_start().starts_with('=');
    // A thrown error may quote the code that checked.
    let is_thrown = line.split(' ').next().is_some_and(|word| word.ends_with("Error:") || word.ends_with("Exception:"))
        || line.contains("Check failed: ");
    let is_code = tells("code", &both) && !is_thrown && !tells("first person", &both);
    if is_code || is_string || is_value || line.starts_with("//") || is_comment(window) || is_documented(window, &low) {
        return false;
    }
    let is_answered = || tells("answers", &window.around(0, AROUND_EXPLAINED.1).to_ascii_lowercase());
    if is_answered() || !tells("first person", &both) && (is_explained(window, before, after) || is_introduced(window)) {
        return false;
    }
    // A name with a comma, alone on its line, is an element of a list.
    let is_listed = trust == Trust::Name && after.trim_start().starts_with(',');
    // `hipErrorOutOfMemory: out of memory` alone on its line.
    let is_spelled_out = before.is_empty() && after.trim_end() == ": out of memory";
    if ends_as_error(before) || tells("happened", &both) || is_alone(&both) && !is_listed || is_spelled_out {
        return true;
    }
    if tells("advice", &both) && !is_logged(line) {
        return false;
    }
    // A list of "errors" reports none.
    let both = both.replace("errors", "");
    // Words such as "failed to allocate memory", other than names, tell themselves that it happened.
    let is_telling = anchor.contains(' ') && tells("failing", anchor);
    trust == Trust::Phrase || is_telling || tells("error", &both)
}

/// True where a page or a line of code defines the name, or says in a sentence of documentation what it is for.
fn is_documented(window: &Window<'_>, low: &str) -> bool {
    let around = window.around(GUIDE, GUIDE).to_ascii_lowercase();
    const SAYS: &str = "creates |raised |represents |describes |enable |use |reduce |lower |increase |wrap |avoid |consider ";
    looks_like!(
        r"(?:^|\])(?:pub |open |public |static |final )*(?:class|exception|interface|struct|enum|constant|defmodule) \**[a-z_0-9.:]*memory",
        low
    ) || SAYS.split('|').any(|word| low.starts_with(word))
        || low.ends_with('#')
        || is_among_names(window)
        || has(&around, "\nraised when |\nthrown when ")
        || tells("documents", &around)
}

/// True in a list of names of errors, or of sorted words, one a line.
fn is_among_names(window: &Window<'_>) -> bool {
    let lines = || window.around(1, 1).lines().map(|line| stripped(line).rest.trim());
    let is_constant =
        |line: &&str| line.contains('_') && line.bytes().all(|b| b.is_ascii_uppercase() || b"_0123456789".contains(&b));
    let mut constants = lines().filter(is_constant);
    let first = constants.next();
    if constants.any(|other| Some(other) != first) {
        return true;
    }
    let is_word = |line: &&str| line.bytes().all(|b| b.is_ascii_lowercase() || b"</>#".contains(&b)) && !line.is_empty();
    let words: Vec<&str> = lines().filter(is_word).collect();
    lines().filter(|line| line.ends_with("Error") && !line.contains(' ')).count() > 1 || words.len() > 2 && words.is_sorted()
}

/// True for an indented name that the lines below it explain, indented more: `Raises` in a docstring.
fn is_entry(window: &Window<'_>) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (own, below) = (indent(window.raw_line()), window.around(0, 1).lines().nth(1).unwrap_or(""));
    own > 0 && !below.trim().is_empty() && indent(below) > own
}

/// True if a text may have tests that passed; most have none.
pub(super) fn may_have_passed(text: &str) -> bool {
    has(text, PASSES) || PASS_ENDS.iter().any(|end| contains(text, end))
}

/// True in a test that passed: of GoogleTest between its two marks, of others by the line itself.
pub(super) fn is_passed(window: &Window<'_>) -> bool {
    let mark = |line: &&str| line.starts_with('[') && has(line, "[ RUN      ]|[       OK ]|[  FAILED  ]");
    let above = || window.around(PASSED, 0).lines().rev().find(mark);
    let below = || window.around(0, PASSED).lines().skip(1).find(mark);
    let line = window.raw_line().trim_end();
    let line = line.rsplit('\r').next().unwrap_or(line);
    // pytest's progress.
    let line = line.strip_suffix("%]").and_then(|line| line.rsplit_once(" [")).map_or(line, |(line, _)| line);
    PASS_ENDS.iter().any(|end| line.ends_with(end))
        || has(line, PASSES)
        || below().is_some_and(|line| line.contains("OK ]")) && above().is_some_and(|line| line.contains("RUN "))
}

/// What frameworks print in the line of a test that passed, and at its end: elsewhere these are words of a log.
const PASSES: &str = "[       OK ]|--- PASS: |   Passed ";
const PASS_ENDS: [&str; 2] = [" PASSED", " ... ok"];

/// Lines above and below in which the marks of a test are searched.
const PASSED: usize = 30;

/// True for a line of a log that names its place in a source: `allocator.h:68] failed`.
fn is_logged(line: &str) -> bool {
    looks_like!(r"^[^]]*(\.[^]:]*:\d+)\] ", line)
}

/// True after `RuntimeError: ` or `what():  `: the thrown error follows.
fn ends_as_error(before: &str) -> bool {
    let before = before.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '`' | '*' | '"' | '\''));
    words("error ends").any(|end| before.ends_with(end))
        || (before.ends_with(':') && !before.ends_with("errors:") && tells("error", before) && !before.contains("if "))
}

/// Shells print `script: line 28:  8156 Killed      python3 main.py` and `zsh: killed  python3 main.py`. Markdown joins the spaces.
fn is_job(before: &str, after: &str) -> bool {
    let whose = before.trim_end().rsplit(' ').next().unwrap_or("");
    let is_number = !whose.is_empty() && whose.bytes().all(|b| b.is_ascii_digit());
    let is_of_script = is_number && before.contains(": line ") && after.starts_with(' ');
    is_of_script || after.starts_with("  ") && (is_number || whose == "zsh:")
}

/// The last `most` bytes of a text.
fn tail(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}
