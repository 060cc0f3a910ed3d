//! Compares the allocator with the reference model, an independent implementation in Python, on random programs, line by line.
//!
//! Set `VRAMSCOPE_ALLOCATOR_MODEL` to the path of `allocator_model.py` (and have `python3`) to run it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::script::Script;
use vramscope_core::allocator::Placement;
use vramscope_core::model::TorchVersion;

/// A small generator of its own, so that a seed always gives the same program.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn size(&mut self) -> u64 {
        const MIB: u64 = 1 << 20;
        match self.below(12) {
            0..=2 => 1 + self.below(4096),
            3..=4 => 1 + self.below(MIB),
            5 => [512, MIB, MIB + 1, 10 * MIB, 10 * MIB - 511, 20 * MIB][self.below(6) as usize],
            6..=8 => MIB + self.below(9 * MIB),
            9..=10 => 10 * MIB + self.below(40 * MIB),
            _ => 2 * MIB * (1 + self.below(60)),
        }
    }
}

#[derive(Clone, Copy)]
struct Mode {
    conf: &'static str,
    streams: u64,
    records: bool,
    fraction: &'static str,
    pools: bool,
    toggles: &'static [&'static str],
}

const PLAIN: Mode = Mode { conf: "", streams: 1, records: false, fraction: "", pools: false, toggles: &[] };

const MODES: &[Mode] = &[
    PLAIN,
    Mode { streams: 3, ..PLAIN },
    Mode { streams: 2, records: true, ..PLAIN },
    Mode { fraction: "0.02", ..PLAIN },
    Mode { fraction: "0.03", streams: 2, records: true, ..PLAIN },
    Mode { conf: "garbage_collection_threshold:0.6", fraction: "0.04", ..PLAIN },
    Mode { conf: "max_split_size_mb:40", fraction: "0.03", ..PLAIN },
    Mode {
        conf: "max_split_size_mb:30,max_non_split_rounding_mb:40,garbage_collection_threshold:0.7",
        fraction: "0.04",
        streams: 2,
        ..PLAIN
    },
    Mode { conf: "roundup_power2_divisions:[1:2,4:8,16:4,>:2]", fraction: "0.04", ..PLAIN },
    Mode { conf: "roundup_power2_divisions:8", ..PLAIN },
    Mode { conf: "expandable_segments:True", ..PLAIN },
    Mode { conf: "expandable_segments:True", fraction: "0.03", streams: 2, records: true, ..PLAIN },
    Mode { conf: "expandable_segments:True,roundup_power2_divisions:4", fraction: "0.02", ..PLAIN },
    Mode { conf: "expandable_segments:True,max_split_size_mb:40", fraction: "0.03", ..PLAIN },
    Mode {
        conf: "expandable_segments:True",
        fraction: "0.04",
        toggles: &["expandable_segments:True", "expandable_segments:False"],
        ..PLAIN
    },
    Mode { pools: true, fraction: "0.04", ..PLAIN },
    Mode { pools: true, streams: 2, records: true, fraction: "0.03", ..PLAIN },
    Mode { pools: true, conf: "max_split_size_mb:60,garbage_collection_threshold:0.5", fraction: "0.04", ..PLAIN },
];

fn program(mode: Mode, large_segments: bool, dice: &mut Dice) -> String {
    let mut out = String::new();
    let mut live: Vec<u64> = Vec::new();
    let mut next = 0u64;
    let mut routed = false;
    let stream = |dice: &mut Dice| if mode.streams > 1 { dice.below(mode.streams) * 0x1000 } else { 0 };
    if !mode.fraction.is_empty() {
        let _ = writeln!(out, "frac {}", mode.fraction);
    }
    if mode.pools {
        out.push_str("pcreate 0 7\n");
        if dice.one_in(2) {
            out.push_str("uoom 0 7 1\n");
        }
        if dice.one_in(4) {
            out.push_str("nosplit 0 7\n");
        }
    }
    for _ in 0..260 {
        match dice.below(20) {
            0..=9 => {
                let size = if large_segments { dice.size() } else { 1 + dice.below(300_000) };
                let _ = writeln!(out, "a {next} {size} {:x}", stream(dice));
                live.push(next);
                next += 1;
            }
            10..=15 if !live.is_empty() => {
                let id = live.swap_remove(dice.below(live.len() as u64) as usize);
                if mode.records && dice.one_in(3) {
                    let _ = writeln!(out, "r {id} 3000");
                }
                let _ = writeln!(out, "f {id}");
            }
            16 if mode.records => {
                let _ = writeln!(out, "c 3000");
            }
            17 if dice.one_in(4) && !routed => out.push_str("e\n"),
            18 if mode.pools => {
                if routed {
                    out.push_str("pend 0 7\nprel 0 7\n");
                } else {
                    out.push_str("pbegin 0 7\n");
                }
                routed = !routed;
            }
            18 if !mode.toggles.is_empty() && dice.one_in(3) => {
                let _ = writeln!(out, "set {}", mode.toggles[dice.below(mode.toggles.len() as u64) as usize]);
            }
            19 => out.push_str("s\n"),
            _ => {}
        }
    }
    if routed {
        out.push_str("pend 0 7\nprel 0 7\n");
    }
    out.push_str("snap\nstats\ne\nsnap\nstats\n");
    out
}

fn reference(model: &str, version: u16, down: u8, conf: &str, script: &str) -> Vec<String> {
    let mut child = Command::new("python3")
        .args([model, &format!("2{version:02}")])
        .env("FAKE_TOTAL", (8u64 << 30).to_string())
        .env("FAKE_DOWN", down.to_string())
        .env("PYTORCH_CUDA_ALLOC_CONF", conf)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the reference model failed on\n{script}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn random_programs_match_the_reference_model() {
    let Some(model) = std::env::var_os("VRAMSCOPE_ALLOCATOR_MODEL") else {
        crate::shared::not_run("set VRAMSCOPE_ALLOCATOR_MODEL to allocator_model.py");
        return;
    };
    let model = model.to_str().unwrap();
    let rounds: u64 = std::env::var("VRAMSCOPE_DIFFERENTIAL_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1);
    let mut lines = 0;
    let mut programs = 0;
    for round in 0..rounds {
        for (m, &mode) in MODES.iter().enumerate() {
            for version in [11u16, 12, 13, 5] {
                // Bounds and defaults that old releases lack are tested with the parser.
                if version == 5 && (mode.pools || mode.conf.contains("max_") || mode.conf.contains('[')) {
                    continue;
                }
                let mut dice = Dice(round * 7919 + m as u64 * 101 + u64::from(version));
                let down = dice.below(3) as u8;
                let placement = [Placement::Ascending, Placement::Descending, Placement::Alternating][usize::from(down)];
                let only_small = dice.one_in(5);
                let script = program(mode, !only_small, &mut dice);
                let expected = reference(model, version, down, mode.conf, &script);
                let got = Script::new(TorchVersion::new(2, version), 8 << 30, mode.conf, placement).run(&script);
                for (i, line) in expected.iter().enumerate() {
                    assert_eq!(
                        got.get(i),
                        Some(line),
                        "line {i} of round {round}, mode {m}, version 2.{version}; before it:\n{}",
                        expected[i.saturating_sub(12)..i].join("\n")
                    );
                }
                assert_eq!(expected.len(), got.len());
                lines += expected.len();
                programs += 1;
            }
        }
    }
    println!("{programs} programs, {lines} lines agree");
}
