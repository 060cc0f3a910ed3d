//! Loads pieces of a pickle: one stored object, or the items of a batch.

use std::sync::atomic::{AtomicI64, Ordering};

use super::PickleError;
use super::machine::{Machine, Slot};
use super::memo::MemoIndex;
use super::opcodes as op;
use super::ops::Op;
use super::tree::{Node, NodeId, Tree};

/// Maximum nodes per byte of file, over all loads; more is treated as an attack. Genuine files need only a few.
const NODES_PER_BYTE: i64 = 32;
/// How far after an object to look for opcodes that continue to fill it.
const MAX_LOOKAHEAD: usize = 1 << 16;
/// If more values than this follow a container and none is added to it, they are its neighbours. A value that is appended singly
/// is one value, at most a few that become a tuple.
const MAX_LOOSE: usize = 8;
/// Bytes of a fetched text that cost as much as one node; this matters only for texts that are fetched again and again.
const TEXT_PER_NODE: usize = 16;

/// The remaining budget for repeated loads of pieces of one file.
#[derive(Debug)]
pub(crate) struct Budget(AtomicI64);

impl Budget {
    pub(crate) fn for_file(bytes: usize) -> Self {
        Budget(AtomicI64::new((bytes as i64).saturating_mul(NODES_PER_BYTE).saturating_add(1 << 22)))
    }

    /// Subtracts `nodes` from the budget. Fails when the budget is used up.
    pub(crate) fn spend(&self, nodes: usize, offset: u64) -> Result<(), PickleError> {
        if self.0.fetch_sub(nodes as i64, Ordering::Relaxed) > nodes as i64 {
            return Ok(());
        }
        // Set to zero, so that the counter never wraps around.
        self.0.store(0, Ordering::Relaxed);
        Err(PickleError::Limit { offset, what: "its values refer to each other far more than a snapshot's do".to_owned() })
    }
}

pub(crate) struct Items {
    pub(crate) nodes: Vec<NodeId>,
    /// Position to continue from.
    pub(crate) next: usize,
    /// The memo id that the next `MEMOIZE` there takes.
    pub(crate) memo_id: u64,
}

/// Reads the values from `pos` until nothing is open and another dict begins, or until `end`. Skips a single `APPEND` that consumes
/// a value. Fails when they are not plain values.
pub(crate) fn items<'a>(
    bytes: &'a [u8],
    memo: &MemoIndex,
    (pos, end): (usize, usize),
    memo_id: u64,
    tree: &mut Tree<'a>,
    budget: &Budget,
) -> Result<Items, PickleError> {
    let mut machine = Machine::new(bytes, std::mem::take(tree), memo_id);
    let mut p = pos;
    let mut done: Vec<Slot> = Vec::new();
    while p < end {
        let between = machine.marks.is_empty() && !machine.stack.is_empty();
        if between && bytes[p] == op::EMPTY_DICT {
            break;
        }
        if between && bytes[p] == op::APPEND && machine.stack.len() == 1 {
            done.append(&mut machine.stack);
            p += 1;
            break;
        }
        let read = Op::read(bytes, p)?;
        if read.code == op::STOP {
            break;
        }
        machine.step(read, p)?;
        p = read.next;
    }
    done.append(&mut machine.stack);
    let memo_id = machine.memo.count;
    let outside = machine.outside.into_iter().collect();
    *tree = machine.tree;
    resolve_outside(bytes, memo, tree, outside, budget)?;
    Ok(Items { nodes: done.iter().map(|slot| slot.node).collect(), next: p, memo_id })
}

/// Replaces each [`Node::Memo`] in `missing` by the stored object. Terminates on cycles, because each id is loaded once. Fails when
/// an id was never stored, or the budget is used up.
pub(crate) fn resolve_outside<'a>(
    bytes: &'a [u8],
    memo: &MemoIndex,
    tree: &mut Tree<'a>,
    mut missing: Vec<(u64, NodeId)>,
    budget: &Budget,
) -> Result<(), PickleError> {
    let mut machine = Machine::new(bytes, std::mem::take(tree), 0);
    let outcome = resolve(memo, &mut machine, &mut missing, budget);
    *tree = machine.tree;
    outcome
}

/// Like [`resolve_outside`], with a machine that is reused for each object.
fn resolve<'a>(
    memo: &MemoIndex,
    machine: &mut Machine<'a>,
    missing: &mut Vec<(u64, NodeId)>,
    budget: &Budget,
) -> Result<(), PickleError> {
    let mut loaded: rustc_hash::FxHashMap<u64, NodeId> = rustc_hash::FxHashMap::default();
    while let Some((id, place)) = missing.pop() {
        let offset = machine.tree.offset(place);
        let node = match loaded.get(&id) {
            Some(&node) => node,
            None => {
                let start = memo.start(id).filter(|&start| start < offset || start == 0).ok_or_else(|| {
                    PickleError::Malformed { offset, what: format!("memo entry {id} is fetched but was never stored") }
                })?;
                let before = machine.tree.nodes.len();
                let (node, walked) = match machine.text_at(start as usize) {
                    Some(text) => (text, 1),
                    None => object(memo, id, start, machine, missing)?,
                };
                budget.spend(machine.tree.nodes.len() - before + walked, offset)?;
                loaded.insert(id, node);
                node
            }
        };
        let content = machine.tree.node(node).clone();
        budget.spend(cost(&content), offset)?;
        if let Some(slot) = machine.tree.nodes.get_mut(place as usize) {
            *slot = content;
        }
    }
    Ok(())
}

/// Loads the list stored as `id`. Its fetched items stay [`Node::Memo`], because the caller may have them cached; references
/// inside items that are written in full are loaded.
pub(crate) fn list_of_fetched<'a>(
    bytes: &'a [u8],
    memo: &MemoIndex,
    tree: &mut Tree<'a>,
    id: u64,
    budget: &Budget,
) -> Result<NodeId, PickleError> {
    let never = || PickleError::Malformed { offset: 0, what: format!("memo entry {id} is fetched but was never stored") };
    let start = memo.start(id).ok_or_else(never)?;
    let before = tree.nodes.len();
    let mut missing = Vec::new();
    let mut machine = Machine::new(bytes, std::mem::take(tree), 0);
    let outcome = object(memo, id, start, &mut machine, &mut missing);
    *tree = machine.tree;
    let (node, walked) = outcome?;
    budget.spend(tree.nodes.len() - before + walked, start)?;
    let own: rustc_hash::FxHashSet<NodeId> = tree.items(node).iter().copied().collect();
    missing.retain(|(_, place)| !own.contains(place));
    resolve_outside(bytes, memo, tree, missing, budget)?;
    Ok(node)
}

/// Loads the object stored as `id`, which begins at `start`. Adds its references to `missing`. Returns also the number of opcodes.
fn object(
    memo: &MemoIndex,
    id: u64,
    start: u64,
    machine: &mut Machine<'_>,
    missing: &mut Vec<(u64, NodeId)>,
) -> Result<(NodeId, usize), PickleError> {
    let malformed = |offset: usize, what: &str| PickleError::Malformed { offset: offset as u64, what: what.to_owned() };
    let mut pos = start as usize;
    machine.restart(memo.first_id_from(start, id));
    let mut walked = 0;
    let outcome = loop {
        walked += 1;
        let read = match Op::read(machine.bytes, pos) {
            Ok(read) if read.code != op::STOP => read,
            Ok(_) => break Err(malformed(pos, "a stored object is not complete")),
            Err(error) => break Err(error),
        };
        match machine.step(read, pos) {
            Ok(stored) => {
                pos = read.next;
                if stored.is_some_and(|(stored, _)| stored == id) && machine.marks.is_empty() && machine.stack.len() == 1 {
                    break Ok(machine.stack[0].node);
                }
            }
            Err(error) => break Err(error),
        }
    };
    missing.extend(machine.outside.drain());
    if let Ok(node) = outcome {
        let (before, nodes) = (length(machine.tree.node(node)), machine.tree.nodes.len());
        walked += finish_filling(machine, node, pos);
        if length(machine.tree.node(node)) != before {
            missing.extend(machine.outside.drain());
        } else {
            // Looking further found nothing: the values belong to neighbours, so drop them and their references.
            machine.tree.nodes.truncate(nodes);
            machine.tree.offsets.truncate(nodes);
        }
    }
    outcome.map(|node| (node, walked))
}

fn length(node: &Node) -> usize {
    match node {
        Node::List(items) => items.len(),
        Node::Dict(pairs) => pairs.len(),
        _ => 0,
    }
}

/// The cost of copying a node, in memory or in time to read it.
fn cost(node: &Node) -> usize {
    match node {
        Node::Str(text) => text.len() / TEXT_PER_NODE,
        other => length(other),
    }
}

/// CPython stores a container before it fills it: continues while opcodes may add items. Returns the number of opcodes read.
fn finish_filling(machine: &mut Machine<'_>, node: NodeId, mut pos: usize) -> usize {
    if !matches!(machine.tree.node(node), Node::List(_) | Node::Dict(_)) {
        return 0;
    }
    let limit = pos.saturating_add(MAX_LOOKAHEAD);
    let mut walked = 0;
    // Values pushed after the container but never added to it belong to its neighbours.
    while pos < limit {
        walked += 1;
        let Ok(read) = Op::read(machine.bytes, pos) else { break };
        let depth = if machine.marks.is_empty() { machine.stack.len() } else { 0 };
        let ends = matches!(read.code, op::STOP) || depth == 1 && takes_top(read.code) || depth > 1 + MAX_LOOSE;
        let held = length(machine.tree.node(node));
        if ends || machine.step(read, pos).is_err() || machine.stack.is_empty() {
            break;
        }
        pos = read.next;
        // Every writer fills in batches of a thousand, so a smaller batch is the last one.
        let batch = length(machine.tree.node(node)) - held;
        let is_alone = machine.marks.is_empty() && machine.stack.len() == 1;
        if is_alone && (1..BATCH).contains(&batch) && ends_batch(read.code) && !begins_batch(machine.bytes, pos) {
            break;
        }
    }
    walked
}

/// Items per list batch and pairs per dict batch in Python's pickle.
const BATCH: usize = 1_000;

fn ends_batch(code: u8) -> bool {
    matches!(code, op::APPENDS | op::SETITEMS | op::ADDITEMS)
}

/// True if the next opcode with an effect begins a batch.
fn begins_batch(bytes: &[u8], mut pos: usize) -> bool {
    while let Ok(read) = Op::read(bytes, pos) {
        match read.code {
            op::FRAME | op::MEMOIZE | op::BINPUT | op::LONG_BINPUT | op::PUT => pos = read.next,
            code => return code == op::MARK,
        }
    }
    false
}

/// Opcodes that consume the container when it is alone on the stack.
fn takes_top(code: u8) -> bool {
    matches!(
        code,
        op::APPEND
            | op::APPENDS
            | op::SETITEM
            | op::SETITEMS
            | op::ADDITEMS
            | op::TUPLE
            | op::TUPLE1
            | op::TUPLE2
            | op::TUPLE3
            | op::LIST
            | op::DICT
            | op::FROZENSET
            | op::POP
            | op::POP_MARK
    )
}
