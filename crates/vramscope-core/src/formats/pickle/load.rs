//! Loading pieces of a pickle: one stored object, or the items of a batch.

use std::sync::atomic::{AtomicI64, Ordering};

use super::PickleError;
use super::machine::{Machine, Slot};
use super::memo::MemoIndex;
use super::opcodes as op;
use super::ops::Op;
use super::tree::{Node, NodeId, Tree};

/// Nodes a byte of file may be made into, over all loads of it, before it is taken for an attack. What a writer makes needs a
/// few.
const NODES_PER_BYTE: i64 = 32;
/// How far past an object to look for opcodes that go on filling it.
const MAX_LOOKAHEAD: usize = 1 << 16;
/// More values than this behind a container, and none given to it: they are its neighbours. What is appended alone is one value, at
/// most a few that become a tuple.
const MAX_LOOSE: usize = 8;
/// Bytes of a fetched text that count as much as a node: only texts that are fetched again and again come to something.
const TEXT_PER_NODE: usize = 16;

/// What may still be spent on loading pieces of one file again and again.
#[derive(Debug)]
pub(crate) struct Budget(AtomicI64);

impl Budget {
    /// The budget of a file of so many bytes.
    pub(crate) fn for_file(bytes: usize) -> Self {
        Budget(AtomicI64::new((bytes as i64).saturating_mul(NODES_PER_BYTE).saturating_add(1 << 22)))
    }

    /// Takes so much off.
    ///
    /// # Errors
    /// [`PickleError::Limit`] when nothing is left.
    pub(crate) fn spend(&self, nodes: usize, offset: u64) -> Result<(), PickleError> {
        if self.0.fetch_sub(nodes as i64, Ordering::Relaxed) > nodes as i64 {
            return Ok(());
        }
        // Stay spent, without ever wrapping around.
        self.0.store(0, Ordering::Relaxed);
        Err(PickleError::Limit { offset, what: "its values refer to each other far more than a snapshot's do".to_owned() })
    }
}

/// What [`items`] read.
pub(crate) struct Items {
    pub(crate) nodes: Vec<NodeId>,
    /// Where to go on.
    pub(crate) next: usize,
    /// The id the next `MEMOIZE` there takes.
    pub(crate) memo_id: u64,
}

/// Reads the values that begin at `pos`, until nothing is open and another dict begins, or `end`. A single `APPEND` that gives
/// one away is passed over.
///
/// # Errors
/// [`PickleError`] when they are no plain values.
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

/// Replaces each [`Node::Memo`] named in `missing` by what is stored there. Cycles end, because each id is loaded once.
///
/// # Errors
/// [`PickleError`] when an id was never stored, or what it leads to is out of proportion.
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

/// As [`resolve_outside`], by a machine that is used again for each object.
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
                let (node, walked) = object(memo, id, start, machine, missing)?;
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

/// Loads the list stored as `id`. Its own items stay [`Node::Memo`] where they are fetched, for whoever knows them already; what those
/// that are written out refer to is loaded.
///
/// # Errors
/// As [`resolve_outside`].
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

/// Loads the object stored as `id`, which begins at `start`. What it refers to is added to `missing`. Also says how many opcodes
/// that took.
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
            // Nothing came of looking further: the neighbours and what they refer to are none of ours.
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

/// What a copy of a node takes, of memory or of time to read it.
fn cost(node: &Node) -> usize {
    match node {
        Node::Str(text) => text.len() / TEXT_PER_NODE,
        other => length(other),
    }
}

/// CPython stores a container before it fills it: runs on while what follows may still be its items. Says how many opcodes it
/// looked at.
fn finish_filling(machine: &mut Machine<'_>, node: NodeId, mut pos: usize) -> usize {
    if !matches!(machine.tree.node(node), Node::List(_) | Node::Dict(_)) {
        return 0;
    }
    let limit = pos.saturating_add(MAX_LOOKAHEAD);
    let mut walked = 0;
    // What is pushed above the container and never given to it belongs to its neighbours.
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
        // Every writer fills in batches of a thousand, so a smaller one is the last.
        let batch = length(machine.tree.node(node)) - held;
        let is_alone = machine.marks.is_empty() && machine.stack.len() == 1;
        if is_alone && (1..BATCH).contains(&batch) && ends_batch(read.code) && !begins_batch(machine.bytes, pos) {
            break;
        }
    }
    walked
}

/// Items that Python's pickle gives to a list, and pairs to a dict, at once.
const BATCH: usize = 1_000;

fn ends_batch(code: u8) -> bool {
    matches!(code, op::APPENDS | op::SETITEMS | op::ADDITEMS)
}

/// True where the next opcode that does something begins a batch.
fn begins_batch(bytes: &[u8], mut pos: usize) -> bool {
    while let Ok(read) = Op::read(bytes, pos) {
        match read.code {
            op::FRAME | op::MEMOIZE | op::BINPUT | op::LONG_BINPUT | op::PUT => pos = read.next,
            code => return code == op::MARK,
        }
    }
    false
}

/// Opcodes that, with the container alone on the stack, give it to whatever holds it.
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
