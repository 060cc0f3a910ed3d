//! The layers of `src/lib.rs` hold: no import points right, only `app` names the screen.
//!
//! The check reads the source as text, without comments and literals, and follows `crate::`, `super::` and grouped `use` paths
//! from the module they stand in, so that an arrow cannot hide in an expression, a test module or a nested brace.

// A panic is how a test says no, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Crates that draw or talk to the window system. `image` stays inside the window too.
const SCREEN: [&str; 12] = [
    "egui",
    "eframe",
    "egui_plot",
    "egui_tiles",
    "egui_extras",
    "egui_glow",
    "egui_wgpu",
    "epaint",
    "emath",
    "ecolor",
    "winit",
    "rfd",
];

/// One step of the lexer: what matters of Rust for finding paths.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    PathSep,
    Other(char),
}

/// Words, `::` and single characters; comments, strings and characters are left out, lifetimes too.
fn tokens(source: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < chars.len() {
        let start = i;
        let c = chars[i];
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && chars[i] != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            while i < chars.len() {
                match (chars[i], at(i + 1)) {
                    ('/', '*') => (depth, i) = (depth + 1, i + 2),
                    ('*', '/') => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 {
                    break;
                }
            }
        } else if c == '"' {
            i = end_of_string(&chars, i);
        } else if c == '\'' {
            // A character ends with a quote; a lifetime does not.
            if at(i + 1) == '\\' {
                i += 3;
                while i < chars.len() && chars[i] != '\'' {
                    i += 1;
                }
                i += 1;
            } else if at(i + 2) == '\'' {
                i += 3;
            } else {
                i += 1;
                while is_word(at(i)) {
                    i += 1;
                }
            }
        } else if is_word(c) {
            while is_word(at(i)) {
                i += 1;
            }
            let word: String = chars[start..i].iter().collect();
            let hashes = chars[i..].iter().take_while(|&&c| c == '#').count();
            if matches!(word.as_str(), "r" | "br" | "cr") && at(i + hashes) == '"' {
                i = end_of_raw_string(&chars, i + hashes, hashes);
            } else if matches!(word.as_str(), "b" | "c") && at(i) == '"' {
                i = end_of_string(&chars, i);
            } else if word == "r" && hashes == 1 && is_word(at(i + 1)) {
                // A raw name: r#type. The name follows as a word of its own.
                i += 1;
            } else {
                out.push((line, Token::Word(word)));
            }
        } else if c == ':' && at(i + 1) == ':' {
            i += 2;
            out.push((line, Token::PathSep));
        } else {
            i += 1;
            if !c.is_whitespace() {
                out.push((line, Token::Other(c)));
            }
        }
        line += chars[start..i.min(chars.len())].iter().filter(|&&c| c == '\n').count();
    }
    out
}

fn end_of_string(chars: &[char], quote: usize) -> usize {
    let mut i = quote + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn end_of_raw_string(chars: &[char], quote: usize, hashes: usize) -> usize {
    let mut i = quote + 1;
    while i < chars.len() {
        if chars[i] == '"' && chars[i + 1..].iter().take_while(|&&c| c == '#').count() >= hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    i
}

/// The order written in `src/lib.rs`, `units < model < { formats, allocator } < …`: module to rank.
fn order(lib: &str) -> BTreeMap<String, usize> {
    let line = lib.lines().find(|l| l.contains("units < model <")).expect("src/lib.rs states the order of the layers");
    let line = line.trim_start_matches("//!");
    let mut ranks = BTreeMap::new();
    for (rank, layer) in line.split('<').enumerate() {
        for name in layer.split([',', '{', '}']).map(str::trim).filter(|n| !n.is_empty()) {
            ranks.insert(name.to_owned(), rank);
        }
    }
    ranks
}

/// What a walk over one file found.
#[derive(Debug, Default)]
struct Found {
    /// Names of top-level modules, with the line.
    arrows: Vec<(usize, String)>,
    problems: Vec<String>,
}

/// Where the next token of a `use` tree resolves from: a module path inside the crate.
type Module = Vec<String>;

/// Every path of a source file that reaches the crate's root, with the top-level module it names there.
fn walk(module: &[&str], source: &str) -> Found {
    let tokens = tokens(source);
    let word = |i: usize| match tokens.get(i) {
        Some((_, Token::Word(w))) => Some(w.as_str()),
        _ => None,
    };
    let is = |i: usize, c: char| matches!(tokens.get(i), Some((_, Token::Other(o))) if *o == c);
    let is_sep = |i: usize| matches!(tokens.get(i), Some((_, Token::PathSep)));
    let mut found = Found::default();
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut i = 0;
    while i < tokens.len() {
        let line = tokens[i].0;
        if is(i, '{') {
            depth += 1;
        } else if is(i, '}') {
            depth -= 1;
            if inline.last().is_some_and(|(_, at)| *at == depth) {
                inline.pop();
            }
        }
        let starts_path = i == 0 || !is_sep(i - 1);
        match word(i) {
            Some("mod") if word(i + 1).is_some() && is(i + 2, '{') => {
                inline.push((word(i + 1).unwrap_or_default().to_owned(), depth));
                depth += 1;
                i += 3;
                continue;
            }
            Some("path") if i >= 2 && is(i - 1, '[') && is(i - 2, '#') => {
                found.problems.push(format!("line {line}: #[path] hides where a module comes from"));
            }
            Some("include") if is(i + 1, '!') => {
                found.problems.push(format!("line {line}: include! hides where code comes from"));
            }
            Some(root @ ("crate" | "vramscope")) if starts_path => {
                if word(i + 1) == Some("as") {
                    found.problems.push(format!("line {line}: \"{root} as\" gives the root another name"));
                } else if is_sep(i + 1) {
                    tree(&tokens, i + 2, Module::new(), &mut found);
                }
            }
            Some("super") if starts_path && is_sep(i + 1) => {
                let here: Module = module.iter().map(|&m| m.to_owned()).chain(inline.iter().map(|(m, _)| m.clone())).collect();
                tree(&tokens, i, here, &mut found);
            }
            Some(name) if module.first() != Some(&"app") && SCREEN.contains(&name) => {
                found.problems.push(format!("line {line}: {name} is named outside app"));
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// Follows one path, or a group of them, from a module; gives the token after it.
fn tree(tokens: &[(usize, Token)], mut i: usize, mut module: Module, found: &mut Found) -> usize {
    loop {
        let Some((line, token)) = tokens.get(i) else { return i };
        match token {
            Token::Word(w) if w == "super" => {
                module.pop();
            }
            Token::Word(w) if w == "self" => {}
            Token::Word(w) => {
                module.push(w.clone());
                if module.len() == 1 {
                    found.arrows.push((*line, w.clone()));
                }
                // Below the root nothing can climb out again but `super`, which Rust allows only at the start.
                if module.len() > 1 || !matches!(tokens.get(i + 1), Some((_, Token::PathSep))) {
                    return i + 1;
                }
            }
            Token::Other('{') => {
                i += 1;
                let mut depth = 0;
                while let Some((_, token)) = tokens.get(i) {
                    match token {
                        Token::Other('}') if depth == 0 => return i + 1,
                        Token::Other('}') => depth -= 1,
                        Token::Other('{') => depth += 1,
                        Token::Other(',') | Token::PathSep => {}
                        Token::Other(_) => {}
                        Token::Word(w) if depth == 0 && w == "as" => i += 1,
                        Token::Word(_) if depth == 0 => {
                            let after_path = matches!(tokens.get(i - 1), Some((_, Token::PathSep)));
                            if !after_path {
                                i = tree(tokens, i, module.clone(), found);
                                continue;
                            }
                        }
                        Token::Word(_) => {}
                    }
                    i += 1;
                }
                return i;
            }
            Token::Other('*') if module.is_empty() => {
                found.problems.push(format!("line {line}: a glob of the crate's root names every layer"));
                return i + 1;
            }
            _ => return i,
        }
        if !matches!(tokens.get(i + 1), Some((_, Token::PathSep))) {
            return i + 1;
        }
        i += 2;
    }
}

/// What a module may not do, in one line a case.
fn violations(ranks: &BTreeMap<String, usize>, module: &[&str], source: &str) -> Vec<String> {
    let found = walk(module, source);
    let mut out = found.problems;
    let Some(&own) = module.first().and_then(|m| ranks.get(*m)) else {
        out.push(format!("{} is no layer of src/lib.rs", module.first().unwrap_or(&"?")));
        return out;
    };
    for (line, name) in found.arrows {
        match ranks.get(&name) {
            _ if Some(&name.as_str()) == module.first() => {}
            Some(&rank) if rank < own => {}
            Some(_) => out.push(format!("line {line}: {} names {name}, which is not to its left", module[0])),
            None => out.push(format!("line {line}: {name} is no layer of src/lib.rs")),
        }
    }
    out
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("src can be listed") {
        let path = entry.expect("an entry of src").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// `src/app/views/mod.rs` is `["app", "views"]`.
fn module_of<'a>(src: &Path, file: &'a Path) -> Vec<&'a str> {
    let relative = file.strip_prefix(src).expect("a file of src");
    let mut parts: Vec<&str> = relative.iter().map(|p| p.to_str().expect("a name of ASCII letters")).collect();
    let last = parts.pop().expect("a file name").trim_end_matches(".rs");
    if last != "mod" {
        parts.push(last);
    }
    parts
}

#[test]
fn no_import_points_right() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let ranks = order(&std::fs::read_to_string(src.join("lib.rs")).expect("src/lib.rs"));
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut wrong = Vec::new();
    let mut arrows = 0;
    for file in &files {
        let module = module_of(&src, file);
        let source = std::fs::read_to_string(file).expect("a source file");
        if module == ["lib"] {
            let found = walk(&[], &source);
            wrong.extend(found.problems.into_iter().map(|p| format!("src/lib.rs: {p}")));
            continue;
        }
        arrows += walk(&module, &source).arrows.len();
        let shown = file.strip_prefix(&src).expect("a file of src").display();
        wrong.extend(violations(&ranks, &module, &source).into_iter().map(|v| format!("src/{shown}: {v}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() > 50 && arrows > 100, "{} files and {arrows} arrows: the walk misses the source", files.len());
}

fn ranks() -> BTreeMap<String, usize> {
    order("//! units < model < { formats, allocator } < analysis < nvml < { live, probe } < { cli, app } < main")
}

/// Lines that print by themselves, outside tests.
fn prints(source: &str) -> Vec<usize> {
    let source = source.split("#[cfg(test)]").next().unwrap_or(source);
    let tokens = tokens(source);
    let word = |i: usize| match tokens.get(i) {
        Some((_, Token::Word(word))) => word.as_str(),
        _ => "",
    };
    let is = |i: usize, wanted: Token| tokens.get(i).is_some_and(|(_, token)| *token == wanted);
    let prints = |i: &usize| {
        let is_macro = ["print", "println", "eprint", "eprintln"].contains(&word(*i)) && is(i + 1, Token::Other('!'));
        let is_stream = word(*i) == "io" && is(i + 1, Token::PathSep) && ["stdout", "stderr"].contains(&word(i + 2));
        is_macro || is_stream
    };
    (0..tokens.len()).filter(prints).map(|i| tokens[i].0).collect()
}

#[test]
fn everything_that_is_printed_goes_one_way() {
    assert_eq!(prints("fn f() {\n println!(\"{x}\");\n std::io::stderr();\n // eprintln!\n}"), [2, 3]);
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut ways = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let name = file.strip_prefix(&src).expect("a file of src").display().to_string();
        let lines = prints(&std::fs::read_to_string(file).expect("a source file"));
        ways.extend((!lines.is_empty()).then_some(name));
    }
    ways.sort();
    // A session on standard output is no text.
    assert_eq!(ways, ["cli/record.rs", "cli/terminal.rs"], "text is printed through cli::terminal");
}

#[test]
fn the_order_is_read_from_the_crate_documentation() {
    let ranks = ranks();
    assert_eq!(ranks.len(), 11);
    assert_eq!(ranks["formats"], ranks["allocator"]);
    assert!(ranks["units"] < ranks["model"] && ranks["cli"] < ranks["main"]);
}

#[test]
fn bad_sources_are_caught() {
    let ranks = ranks();
    let caught = |module: &[&str], source: &str| !violations(&ranks, module, source).is_empty();
    assert!(caught(&["model", "event"], "use crate::analysis::Curves;"));
    assert!(caught(&["model", "event"], "fn f() { let x = crate::analysis::curves::f(); }"));
    assert!(caught(&["model", "event"], "use super::super::analysis::Curves;"));
    assert!(caught(&["model"], "use super::analysis;"));
    assert!(caught(&["model"], "use super::{units, analysis};"));
    assert!(caught(&["model", "event"], "#[cfg(test)] mod tests { use super::super::super::app::App; }"));
    assert!(caught(&["model", "event"], "use crate::{units::Bytes, formats::{self, pickle}};"));
    assert!(caught(&["model", "event"], "use crate::{units::{Bytes, Micros}, app as a};"));
    assert!(caught(&["formats", "mod"], "use crate::allocator::Caching;"));
    assert!(caught(&["allocator"], "pub(crate) use crate::formats;"));
    assert!(caught(&["cli", "summary"], "use crate::app::App;"));
    assert!(caught(&["analysis"], "use crate :: /* hidden */ app;"));
    assert!(caught(&["analysis"], "use crate::*;"));
    assert!(caught(&["analysis"], "use crate as root;"));
    assert!(caught(&["analysis"], "use egui::Color32;"));
    assert!(caught(&["cli"], "fn f(c: egui_plot::PlotPoint) {}"));
    assert!(caught(&["cli"], "#[path = \"../app/mod.rs\"] mod a;"));
    assert!(caught(&["cli"], "include!(\"../app/mod.rs\");"));
    assert!(caught(&["helpers"], ""));
    assert!(caught(&["cli"], "use crate::helpers::f;"));
}

#[test]
fn good_sources_pass() {
    let ranks = ranks();
    let passes = |module: &[&str], source: &str| {
        let wrong = violations(&ranks, module, source);
        assert!(wrong.is_empty(), "{source}: {wrong:?}");
    };
    passes(
        &["analysis", "oom"],
        "use crate::model::{Block, BlockState}; use crate::formats::oom_message; use super::StateIndex;",
    );
    passes(
        &["analysis"],
        "// use crate::app;\n/* crate::app /* nested */ */ const S: &str = \"crate::app \\\" egui\"; const C: char = '\"';",
    );
    passes(&["analysis"], "const S: &str = r#\"use crate::app; \"egui\"\"#; fn f<'a>(x: &'a str) -> &'a str { x }");
    passes(&["analysis"], "mod inner { use super::strata; mod deeper { use super::super::curves; } } use super::model;");
    passes(
        &["app", "views", "timeline"],
        "use egui::Ui; use super::super::super::analysis::Curves; use crate::{app::theme, units};",
    );
    passes(&["main"], "use vramscope::cli; fn f() { vramscope::app::run() }");
}

/// A value that is gone leaves its address to another, and a cache keyed by it shows what it made of the first.
#[test]
fn no_cache_of_the_window_is_keyed_by_an_address() {
    let (mut found, mut files) = (Vec::new(), Vec::new());
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/app"), &mut files);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        found.extend(code.lines().filter(|l| l.contains("as_ptr(")).map(|l| format!("{}: {}", path.display(), l.trim())));
    }
    assert!(found.is_empty(), "use app::identity::Identity:\n{}", found.join("\n"));
}

/// A promise without a test is none: every test that the page names is there.
#[test]
fn every_promise_names_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    sources(&root.join("tests"), &mut files);
    let code: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let page = std::fs::read_to_string(root.join("docs/TRUST.md")).unwrap();
    let is_name = |text: &&str| text.len() > 20 && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_name).collect();
    assert!(named.len() > 20, "{named:?}");
    let missing: Vec<&&str> = named.iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
