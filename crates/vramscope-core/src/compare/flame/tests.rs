use super::*;
use crate::model::StackTableBuilder;

/// `main` calls `f`, which calls `g` in torch; 22 bytes in total, 7 of them without a stack.
fn example() -> (StackTable, Vec<Entry>) {
    let mut b = StackTableBuilder::new();
    let mut frame = |name: &str, file: &str| b.frame_of(name, file, 1);
    let (main, f) = (frame("main", "/home/me/a.py"), frame("forward", "/home/me/a.py"));
    let g = frame("linear", "/venv/lib/python3.12/site-packages/torch/nn/functional.py");
    let s1 = b.stack(&[f, main]);
    let s2 = b.stack(&[g, f, main]);
    let entry = |stack, role, phase, before, weight, count| Entry { stack, role, phase, weight, probable: 0, before, count };
    let entries = vec![
        entry(s1, Role::Activations, Some(Phase::Forward), 6, 10, 1),
        entry(s2, Role::Workspaces, Some(Phase::Backward), 8, 5, 2),
        entry(StackId::NONE, Role::Unknown, None, 0, 7, 1),
    ];
    (b.finish(), entries)
}

#[test]
fn totals_add_up_from_either_end_whatever_the_frames_are() {
    let (table, mut entries) = example();
    for compares in [false, true] {
        if !compares {
            entries.iter_mut().for_each(|e| e.before = 0);
        } else {
            entries = example().1;
        }
        for root in [Root::Outermost, Root::Innermost] {
            for by in By::ALL {
                for folds_framework in [false, true] {
                    let flame = Flame::build(&table, &entries, Shape { root, by, folds_framework });
                    let all = &flame.nodes[0];
                    assert_eq!(all.total, if compares { 25 } else { 22 });
                    assert_eq!((all.after, all.count), (22, 4));
                    assert_eq!(flame.nodes.iter().map(|n| n.own).sum::<u64>(), all.total);
                    for (i, node) in flame.nodes.iter().enumerate() {
                        let sum = |of: fn(&Node) -> u64| node.children.iter().map(|&c| of(&flame.nodes[c as usize])).sum::<u64>();
                        assert_eq!(node.total, node.own + sum(|n| n.total), "{by:?} {i}");
                        assert!(node.common <= node.before.min(node.after));
                        assert!(node.total >= node.after.max(node.before));
                        assert!(node.children.iter().all(|&c| flame.nodes[c as usize].parent == i as u32));
                    }
                }
            }
        }
    }
    let entries = example().1;
    let all = Flame::build(&table, &entries, Shape::default());
    assert_eq!((all.nodes[0].before, all.nodes[0].common, all.nodes[0].role), (14, 11, None));
    let text = Flame::build(&table, &entries[..1], Shape::default()).collapsed(&table);
    assert_eq!(text, "main (a.py:1);forward (a.py:1) 10\n");
}

#[test]
fn a_role_that_is_inferred_is_told_with_probably() {
    let (table, mut entries) = example();
    let by_role = |entries: &[Entry]| Flame::build(&table, entries, Shape { by: By::Role, ..Shape::default() }).collapsed(&table);
    assert!(!by_role(&entries).contains("probably"));
    entries[0].probable = 6;
    let text = by_role(&entries);
    assert!(text.contains("probably activations;main") && text.contains("\nworkspaces;main"), "{text}");
}

#[test]
fn frames_are_files_modules_roles_or_phases_when_asked() {
    let (table, entries) = example();
    let names = |by, folds_framework| {
        let flame = Flame::build(&table, &entries, Shape { by, folds_framework, ..Shape::default() });
        let mut names: Vec<String> = flame.nodes.iter().skip(1).map(|n| node_name(&table, n)).collect();
        names.sort();
        names
    };
    assert_eq!(names(By::File, false), ["a.py", "functional.py", "no Python stack"]);
    assert_eq!(names(By::File, true), ["a.py", "functional.py", "no Python stack"], "what allocates stays");
    assert_eq!(names(By::Module, false), ["forward (a.py:1)", "no Python stack"]);
    assert!(names(By::Role, true).contains(&"activations".to_owned()));
    for phase in ["forward", "backward", "phase unknown"] {
        assert!(names(By::Phase, true).contains(&phase.to_owned()), "{phase}");
    }
    let flame = Flame::build(&table, &entries, Shape { folds_framework: true, ..Shape::default() });
    assert_eq!(flame.folded_frames, 0);
    let keys: std::collections::HashSet<u64> = flame.keys().into_iter().collect();
    assert_eq!(keys.len(), flame.nodes.len());
    for by in By::ALL {
        let shape = Shape { by, ..Shape::default() };
        let flame = Flame::build(&table, &entries, shape);
        let leaf = flame.leaf_of(&table, entries[0].stack, shape).expect("it is there");
        assert!(flame.nodes[leaf as usize].own >= entries[0].weight, "{by:?}");
    }
    let hits: Vec<bool> = flame.nodes.iter().map(|n| node_name(&table, n).contains("a.py")).collect();
    assert_eq!(flame.matched_by(&hits, |n| [n.total]), ([18], 2), "each byte once");
}
