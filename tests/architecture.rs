//! Checks the rules of docs/ARCHITECTURE.md that the compiler cannot check: the order of modules inside a crate, the single place
//! that prints, and pages that name tests.
//!
//! The crates' Cargo.toml already ensure that the core uses no GPU and that neither library crate uses a screen.

// Tests fail by panicking, also in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

const CORE: &[&[&str]] = &[
    &["units"],
    &["model"],
    &["toy"],
    &["formats", "allocator"],
    &["tables"],
    &["inference"],
    &["anatomy"],
    &["changes"],
    &["query", "diagnose"],
    &["compare", "plan"],
];

/// Folders with their module path and their modules. Each step may only name modules of earlier steps.
const ORDER: [(&str, &str, &[&[&str]]); 4] = [
    ("crates/vramscope-core/src", "crate::", CORE),
    ("crates/vramscope-live/src", "crate::", &[&["nvml"], &["live", "probe"]]),
    ("src", "crate::", &[&["cli"], &["app"]]),
    (
        "src/app",
        "crate::app::",
        &[
            &["jobs", "theme"],
            &["state"],
            &["platform"],
            &["settings"],
            &["data"],
            &["widgets"],
            &["views", "pages"],
            &["live"],
            &["documents"],
            &["dialogs"],
            &["palette", "picture"],
            &["window"],
            &["shell"],
            &["frame"],
            &["run"],
        ],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// The lines without comments, with line numbers from 1.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default()))
}

/// The modules of the module `root` that a line names, in a file `depth` modules below it.
fn named<'a>(line: &'a str, root: &str, depth: usize) -> Vec<&'a str> {
    let word = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
    let mut found = Vec::new();
    for (at, _) in line.match_indices(root) {
        let rest = &line[at + root.len()..];
        // A group or glob import would hide the names.
        found.push(if word(rest) == 0 { "a group of modules" } else { &rest[..word(rest)] });
    }
    for (at, _) in line.match_indices("super::").filter(|(at, _)| !line[..*at].ends_with("super::")) {
        let mut rest = &line[at..];
        let mut up = 0;
        while let Some(shorter) = rest.strip_prefix("super::") {
            (rest, up) = (shorter, up + 1);
        }
        if up >= depth {
            found.push(&rest[..word(rest)]);
        }
    }
    found
}

#[test]
fn no_module_names_one_that_stands_after_it() {
    let mut wrong = Vec::new();
    for (folder, path_of_root, steps) in ORDER {
        let src = root().join(folder);
        let modules: Vec<&str> = steps.concat();
        let mut seen = 0;
        for (path, text) in sources(&src) {
            let parts: Vec<&str> = path.strip_prefix(&src).unwrap().iter().map(|p| p.to_str().unwrap()).collect();
            let own = parts[0].trim_end_matches(".rs");
            let Some(step) = steps.iter().position(|step| step.contains(&own)) else {
                assert!(matches!(own, "lib" | "main" | "mod"), "{} has no place in the order", path.display());
                continue;
            };
            let depth = parts.len() - usize::from(parts.len() > 1 && *parts.last().unwrap() == "mod.rs");
            for (line, code) in code(&text) {
                for name in named(code, path_of_root, depth) {
                    let may = name == own || steps[..step].iter().any(|s| s.contains(&name));
                    seen += usize::from(may);
                    if !may && (modules.contains(&name) || name.starts_with("a group")) {
                        wrong.push(format!("{}:{line}: {own} names {name}", path.display()));
                    }
                }
                if folder != "src/app"
                    && !(folder == "src" && own == "app")
                    && ["egui", "winit", "rfd"].iter().any(|screen| code.contains(&format!("{screen}::")))
                {
                    wrong.push(format!("{}:{line}: {own} names the screen", path.display()));
                }
            }
        }
        assert!(seen > 10, "{folder}: the walk misses the source");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_name_is_found_however_it_is_reached() {
    let in_crate = |line: &'static str, depth| named(line, "crate::", depth);
    assert_eq!(in_crate("use crate::analysis::Curves; let x = crate::units::f();", 2), ["analysis", "units"]);
    assert_eq!(in_crate("use crate::{units::Bytes, app};", 1), ["a group of modules"]);
    assert_eq!(in_crate("use super::super::analysis::Curves;", 2), ["analysis"]);
    assert_eq!(in_crate("use super::analysis;", 1), ["analysis"]);
    assert!(in_crate("use super::{curves, strata}; use super::super::oom;", 3).is_empty());
    assert_eq!(named("use crate::app::views::View; use crate::cli;", "crate::app::", 1), ["views"]);
    assert!(code("// use crate::app;").all(|(_, line)| line.is_empty()));
}

/// The code before a file's test module. `#[cfg(test)]` on a single item does not count.
fn before_tests(text: &str) -> &str {
    let is_module = |at: usize| text[at..].lines().nth(1).is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'));
    let end = text.match_indices("#[cfg(test)]").find(|(at, _)| is_module(*at));
    end.map_or(text, |(i, _)| &text[..i])
}

fn prints(text: &str) -> Vec<usize> {
    let text = before_tests(text);
    let ways = [" print!(", "println!(", "eprint!(", "io::stdout", "io::stderr"];
    code(text).filter(|(_, line)| ways.iter().any(|way| line.contains(way))).map(|(i, _)| i).collect()
}

#[test]
fn everything_that_is_printed_goes_one_way() {
    let one_item = "#[cfg(test)]\nmod tests;\nfn f() {\n    println!();\n}\n";
    assert_eq!(prints(&format!("{one_item}#[cfg(test)]\nmod tests {{\n    println!();\n}}")), [4]);
    assert_eq!(prints("fn f() {\n println!(\"{x}\");\n std::io::stderr();\n // eprintln!(\n}"), [2, 3]);
    let mut ways = Vec::new();
    for (folder, ..) in ORDER.iter().take(3) {
        let src = root().join(folder);
        for (path, text) in sources(&src).iter().filter(|(path, _)| !path.ends_with("tests.rs")) {
            let name = path.strip_prefix(&src).unwrap().display().to_string();
            ways.extend((!prints(text).is_empty()).then_some(name));
        }
    }
    ways.sort();
    // A session on standard output is binary, not text.
    assert_eq!(ways, ["cli/record.rs", "cli/terminal.rs"], "text is printed through cli::terminal");
}

/// The code that changes the window's state should be in a single folder.
#[test]
fn the_application_is_implemented_in_one_room() {
    let src = root().join("src/app");
    let mut rooms = Vec::new();
    for (path, text) in sources(&src) {
        let is_there = code(&text).any(|(_, line)| line.starts_with("impl App ") || line.ends_with(" for App {"));
        let room = path.strip_prefix(&src).unwrap().iter().next().unwrap().to_str().unwrap().to_owned();
        rooms.extend(is_there.then_some(room));
    }
    rooms.sort();
    rooms.dedup();
    assert_eq!(rooms, ["frame.rs", "window"], "a frame in `frame.rs`, everything else in `window`");
}

/// After a value is dropped, its address may be reused. A cache keyed by the address would then return a wrong result.
#[test]
fn no_cache_of_the_window_is_keyed_by_an_address() {
    let mut found = Vec::new();
    for (path, text) in sources(&root().join("src/app")) {
        let code = before_tests(&text);
        found.extend(code.lines().filter(|l| l.contains("as_ptr(")).map(|l| format!("{}: {}", path.display(), l.trim())));
    }
    assert!(found.is_empty(), "use app::identity::Identity:\n{}", found.join("\n"));
}

/// Everyone who clones the repository downloads the pictures of tests and pages.
#[test]
fn the_pictures_of_the_repository_are_few_and_small() {
    let mut bytes = 0;
    for folder in ["tests/snapshots", "docs/images", "assets"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            // Pictures that a failed test writes are not committed.
            let is_left_over = [".new.png", ".diff.png", ".old.png"].iter().any(|end| name.ends_with(end));
            bytes += if name.ends_with(".png") && !is_left_over { entry.metadata().unwrap().len() } else { 0 };
        }
    }
    assert!(
        (1 << 20..=4 << 20).contains(&bytes),
        "{bytes} bytes of pictures: `oxipng -o max --strip all` makes a new one small and changes no pixel"
    );
}

/// Every test that TRUST.md names must exist.
#[test]
fn every_promise_names_tests_that_are_there() {
    let code: String = ["src", "crates", "tests"].iter().flat_map(|f| sources(&root().join(f))).map(|(_, text)| text).collect();
    let page = std::fs::read_to_string(root().join("docs/TRUST.md")).unwrap();
    let is_name = |text: &&str| text.len() > 20 && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_name).collect();
    assert!(named.len() > 20, "{named:?}");
    let missing: Vec<&&str> = named.iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
