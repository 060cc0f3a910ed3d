//! Compares the allocator with real PyTorch. Each vector in `tests/vectors` is a program and what torch 2.11 did with it.

use crate::script::Script;
use vramscope_core::allocator::Placement;
use vramscope_core::model::TorchVersion;

#[test]
fn every_vector_matches_pytorch_line_by_line() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut failures = Vec::new();
    let mut count = 0;
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "txt")) {
        let text = std::fs::read_to_string(file).unwrap();
        let (program, expected) = text.split_once("\n---- expected").unwrap();
        let expected: Vec<&str> = expected.lines().skip(1).collect();
        let header = program.lines().nth(1).unwrap();
        let field = |name: &str| header.split_whitespace().find_map(|w| w.strip_prefix(name)).unwrap();
        let conf = if field("conf=") == "-" { "" } else { field("conf=") };
        let placement = if field("down=") == "1" { Placement::Descending } else { Placement::Ascending };
        let script: String = program.lines().skip(2).map(|l| format!("{l}\n")).collect();
        let total = field("total=").parse().unwrap();
        let got = Script::new(TorchVersion::new(2, 11), total, conf, placement).run(&script);
        count += 1;
        if let Some(at) = (0..expected.len().max(got.len())).find(|&i| expected.get(i).copied() != got.get(i).map(String::as_str))
        {
            failures.push(format!(
                "{}: line {at}\n  expected {:?}\n  got      {:?}",
                file.display(),
                expected.get(at),
                got.get(at)
            ));
        }
    }
    assert!(failures.is_empty(), "{} of {count} vectors differ:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(count, 46);
}
