//! Reads sizes from file names: `resnet_b16_s224.pickle`, `run-batch=8.pickle.zst`.

use super::Size;

/// A part of a name: letters, digits, or the text between such parts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part<'a> {
    Word(&'a str),
    Number(&'a str),
    Between(&'a str),
}

fn kind(c: char) -> u8 {
    if c.is_ascii_digit() {
        0
    } else if c.is_alphabetic() {
        1
    } else {
        2
    }
}

fn parts(name: &str) -> Vec<Part<'_>> {
    let mut out = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| kind(c) != kind(first)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        out.push(match kind(first) {
            0 => Part::Number(part),
            1 => Part::Word(part),
            _ => Part::Between(part),
        });
        rest = after;
    }
    out
}

/// The name without its endings: `run.b8` for `run.b8.pickle.zst`.
fn stem(name: &str) -> &str {
    const ENDINGS: [&str; 10] = [".zst", ".gz", ".zip", ".pickle", ".pkl", ".json", ".html", ".pt", ".trace", ".at_oom"];
    let mut stem = name;
    while let Some(shorter) = ENDINGS.iter().find_map(|e| stem.strip_suffix(e)) {
        stem = shorter;
    }
    stem
}

/// Numbers with the word before them: (word, number, index among the parts).
fn named_numbers(name: &str) -> Vec<(String, u64, usize)> {
    let all = parts(stem(name));
    let mut out: Vec<(String, u64, usize)> = Vec::new();
    for (at, part) in all.iter().enumerate() {
        let Part::Number(digits) = *part else { continue };
        let Ok(value) = digits.parse::<u64>() else { continue };
        // `b16`, `batch=16`, `batch_16`. A number after letters that form a longer word, as in `gpt2`, belongs to that word.
        let is_bound = |between: &str| matches!(between, "=" | "_" | "-" | ":");
        let word = match (at.checked_sub(1).map(|i| all[i]), at.checked_sub(2).map(|i| all[i])) {
            (Some(Part::Word(word)), before) if !matches!(before, Some(Part::Number(_))) => word,
            (Some(Part::Between(between)), Some(Part::Word(word))) if is_bound(between) && is_batch(word) => word,
            (Some(Part::Between("=" | ":")), Some(Part::Word(word))) => word,
            _ => continue,
        };
        let ends_here = !matches!(all.get(at + 1), Some(Part::Word(_)));
        if value > 0 && value < 1 << 32 && ends_here {
            out.push((of_word(word), value, at));
        }
    }
    out
}

/// True if a word is one of those for a batch size.
pub fn is_batch(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "b" | "bs" | "bsz" | "batch" | "batchsize" | "mbs")
}

/// The plan's name for a word: `batch` for all names of a batch, any other word unchanged.
fn of_word(word: &str) -> String {
    if is_batch(word) { "batch".to_owned() } else { word.to_ascii_lowercase() }
}

/// The value of a quantity in a file name.
pub fn value_of(name: &str, quantity: &str) -> Option<u64> {
    named_numbers(name).into_iter().find(|(word, ..)| word == quantity).map(|(_, value, _)| value)
}

/// True if two file names differ only in the numbers of sizes: most likely two runs of one program.
pub fn are_siblings(a: &str, b: &str) -> bool {
    if a == b {
        return false;
    }
    let plain = |name: &str| -> Vec<String> {
        let sizes: Vec<usize> = named_numbers(name).into_iter().map(|(.., at)| at).collect();
        let text = |(at, part): (usize, &Part<'_>)| match part {
            Part::Number(_) if sizes.contains(&at) => "#".to_owned(),
            Part::Word(text) | Part::Number(text) | Part::Between(text) => (*text).to_owned(),
        };
        parts(stem(name)).iter().enumerate().map(text).collect()
    };
    !named_numbers(a).is_empty() && plain(a) == plain(b)
}

/// Sizes in the file names of recordings: the quantities in which they differ, or the batch of a single file. `None` without any.
pub fn sizes_of(names: &[&str]) -> Option<Vec<Size>> {
    let [first, others @ ..] = names else { return None };
    if others.is_empty() {
        return value_of(first, "batch").map(|batch| vec![Size::of("batch", batch)]);
    }
    let all: Vec<_> = names.iter().map(|name| named_numbers(name)).collect();
    let value = |of: &[(String, u64, usize)], word: &str| of.iter().find(|(w, ..)| w == word).map(|(_, v, _)| *v);
    let mut sizes = vec![Size::default(); names.len()];
    for (word, mine, _) in &all[0] {
        let values: Option<Vec<u64>> = all.iter().map(|of| value(of, word)).collect();
        if let Some(values) = values.filter(|values| values.iter().any(|v| v != mine)) {
            sizes = sizes.iter().zip(values).map(|(size, v)| size.with(word, v)).collect();
        }
    }
    let is_told = sizes[0].names().next().is_some();
    is_told.then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_read_out_of_names() {
        for (name, batch) in [
            ("resnet_b16_s224.pickle", Some(16)),
            ("gpt2_b8_s512.pickle", Some(8)),
            ("run-batch=32.pickle.zst", Some(32)),
            ("bert_bs4.pkl", Some(4)),
            ("train_batch_12.json.gz", Some(12)),
            ("gpt.b4.pickle.zst", Some(4)),
            ("oom_rank_0.pickle", None),
            ("snapshot-20250101.pickle", None),
            ("llama2_7b.pickle", None),
            ("web2.pickle", None),
        ] {
            assert_eq!(value_of(name, "batch"), batch, "{name}");
        }
    }

    #[test]
    fn runs_of_one_program_have_names_that_differ_in_sizes() {
        assert!(are_siblings("resnet_b16_s224.pickle", "resnet_b32_s224.pickle"));
        assert!(are_siblings("run.batch=8.pickle", "run.batch=16.pickle.zst"));
        assert!(!are_siblings("resnet_b16_s224.pickle", "gpt2_b16_s224.pickle"));
        assert!(!are_siblings("vit_b16_s224.pickle", "vit_b16_s224_ckpt.pickle"));
        assert!(!are_siblings("leak.pickle", "oom.pickle") && !are_siblings("a_b8.pickle", "a_b8.pickle"));
    }

    #[test]
    fn what_differs_is_the_quantity() {
        let told = |names: &[&str]| sizes_of(names).map(|s| s.iter().map(ToString::to_string).collect::<Vec<_>>());
        let both = |a: &str, b: &str| Some(vec![a.to_owned(), b.to_owned()]);
        assert_eq!(told(&["r_b16_s224.pickle", "r_b32_s224.pickle"]), both("batch 16", "batch 32"));
        assert_eq!(told(&["r_b8_s512.pickle", "r_b8_s1024.pickle"]), both("s 512", "s 1024"));
        assert_eq!(told(&["r_b8_s512.pickle", "r_b4_s1024.pickle"]), both("batch 8, s 512", "batch 4, s 1024"));
        assert_eq!(told(&["r_b8_s512.pickle"]), Some(vec!["batch 8".to_owned()]));
        assert_eq!(told(&["a.pickle", "b.pickle"]), None);
        assert_eq!(told(&["oom.pickle"]), None);
        assert_eq!(value_of("r_b8_s512.pickle", "s"), Some(512));
    }
}
