//! Damaged files of every format: random mutations of seeds, with a fixed seed for reproduction. `fuzz/` does the same without an
//! end, with the same harness and seeds.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::{Target, feed};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The seeds of a format by name. For snapshots also the small samples.
fn seeds(target: Target) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join("fuzz/corpus").join(target.name())).unwrap().map(|e| e.unwrap().path()).collect();
    if target == Target::Snapshot {
        files.extend(["cuda_graph.pickle", "expandable_oom.pickle"].map(|name| root().join("sample_snapshots").join(name)));
    }
    files.sort();
    files.iter().map(|f| (f.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(f).unwrap())).collect()
}

/// Bytes with a meaning in these formats.
const TELLING: &[u8] = b"{}[]\"',:;.-+eE0123456789\\\n \0\xff(){}|\x80\x94";

/// Digits for numbers that do not fit.
const NUMBERS: [&str; 9] = [
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e400",
    "0.5",
    "99999999999999999999",
    "1e-9",
];

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] = TELLING[random.below(TELLING.len())],
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, TELLING[random.below(TELLING.len())]),
            4 => bytes.truncate(at),
            5 => {
                // Duplicates or moves a piece.
                let piece = bytes[at..(at + random.below(60)).min(bytes.len())].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            6 => {
                let end = (at + random.below(200)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                // Replaces a number.
                let Some(from) = bytes[at..].iter().position(u8::is_ascii_digit).map(|p| at + p) else { continue };
                let end = from + bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
                bytes.splice(from..end, NUMBERS[random.below(NUMBERS.len())].bytes());
            }
        }
    }
}

#[test]
fn every_seed_is_read() {
    for target in Target::ALL {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "{target:?}");
        for (name, bytes) in seeds {
            let is_refused = target == Target::Html && name == "picture.html";
            assert_eq!(feed(target, &bytes), !is_refused, "{target:?}: {name}");
        }
    }
}

/// A few kilobytes may never take seconds, whatever they contain.
const LONGEST: Duration = Duration::from_secs(4);

#[test]
fn thousands_of_random_damages_of_every_format_are_survived() {
    let started = Instant::now();
    // VRAMSCOPE_HOSTILE=50 runs fifty times as many mutations.
    let more: u32 = std::env::var("VRAMSCOPE_HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for target in Target::ALL {
        let seeds = seeds(target);
        let mut random = Random(0x5eed_0000_0001 ^ target.name().len() as u64);
        let (mut read, mut slowest) = (0u32, (Duration::ZERO, 0u32));
        // Larger seeds get fewer mutations, so that every format takes about the same time.
        let average = seeds.iter().map(|s| s.1.len()).sum::<usize>() / seeds.len();
        let turns = (5_000_000 / (average + 400)).clamp(300, 3000) as u32 * more;
        for turn in 0..turns {
            let mut bytes = seeds[turn as usize % seeds.len()].1.clone();
            change(&mut bytes, &mut random);
            let before = Instant::now();
            let fed = std::panic::catch_unwind(|| feed(target, &bytes));
            let Ok(fed) = fed else {
                let file = std::env::temp_dir().join(format!("vramscope-hostile-{}-{turn}", target.name()));
                std::fs::write(&file, &bytes).unwrap();
                panic!("{target:?}: turn {turn} did not survive; the bytes are in {}", file.display());
            };
            read += u32::from(fed);
            let mut took = before.elapsed();
            if took > LONGEST {
                // Retried once, because the machine may have been busy.
                let before = Instant::now();
                feed(target, &bytes);
                took = took.min(before.elapsed());
            }
            slowest = slowest.max((took, turn));
        }
        println!("{target:?}: {read} of {turns} damaged files gave something, the slowest took {:?}", slowest.0);
        assert!(slowest.0 <= LONGEST, "{target:?}: turn {} took {:?}", slowest.1, slowest.0);
        assert!(read > 0, "{target:?}");
    }
    println!("in {:?}", started.elapsed());
}

#[test]
fn every_format_cut_anywhere_is_survived() {
    for target in Target::ALL.into_iter().filter(|t| *t != Target::Snapshot) {
        for (name, bytes) in seeds(target) {
            // Every possible cut of small seeds, every 7th of larger ones.
            let step = if bytes.len() > 3_000 { 7 } else { 1 };
            for end in (0..bytes.len()).step_by(step) {
                feed(target, &bytes[..end]);
            }
            assert!(feed(target, &bytes) || name == "picture.html");
        }
    }
}

#[test]
fn each_fuzz_target_is_built_on_the_harness() {
    let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    for target in Target::ALL {
        let name = target.name();
        let source = std::fs::read_to_string(root().join(format!("fuzz/fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("Target::{target:?}")), "{name}");
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is not in fuzz/Cargo.toml");
    }
}
