//! Not a test: the last program that `cargo test` runs. It lists what other tests could not do on this machine.

use std::collections::{BTreeMap, BTreeSet};

fn main() {
    // Tools that only list tests, as nextest does, get none.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let list = concat!(env!("CARGO_TARGET_TMPDIR"), "/not_run.txt");
    let text = std::fs::read_to_string(list).unwrap_or_default();
    let lines: BTreeSet<&str> = text.lines().collect();
    let mut why: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &lines {
        println!("not run: {line}");
        *why.entry(line.split_once(": ").map_or(*line, |(_, why)| why)).or_default() += 1;
    }
    match lines.len() {
        0 => println!("not run: nothing; every test did all of its work"),
        n => {
            let causes: Vec<String> = why.iter().map(|(why, n)| format!("{n} because {why}")).collect();
            println!("not run: {n} in all, {}", causes.join("; "));
        }
    }
    let _ = std::fs::remove_file(list);
}
