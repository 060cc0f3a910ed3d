//! The card of a memory row (a module, a line or a size): what its blocks hold at an instant.

use super::card::{Card, Fact, Line, List};
use super::overall::{largest_held, reasons, when};
use crate::app::data::device::DeviceData;
use crate::app::state::Item;
use crate::app::views::block_name::short_role;
use vramscope_core::anatomy::{Composition, ModuleHeld, OwnBlocks, RoleHeld, Which};
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::tables::{LifetimeId, State};
use vramscope_core::units::{Bytes, count, counted};

/// Kind of a row for a single line.
const LINE: &str = "Line";
/// Most lines listed for a module.
const LINES: usize = 12;

/// The card of a row: its bytes, their roles, the lines that allocated them. O(live blocks × stack depth).
pub(super) fn card(data: &DeviceData, state: &State, roles: &Roles, own: &OwnBlocks) -> Card {
    let (device, tables) = (data.device(), &data.tables);
    let of = |asked: &dyn Fn(Result<LifetimeId, &'static str>) -> bool| {
        Composition::at(&data.recording, device, tables, &data.names, roles, state.event, asked)
    };
    let is_own = |id| own.contains(device, tables, id);
    let (whole, held) = (of(&|_| true), of(&|asked| asked.map_or_else(|part| own.contains_beyond(part), is_own)));
    let (kind, name) = title(&own.which, &whole.modules);
    let is_line = kind == LINE;
    let share = held.bytes as f64 / whole.bytes.max(1) as f64 * 100.0;
    let when = when(data, state);
    let claim = if held.bytes > 0 { format!("{share:.1} % of what is held at {when}") } else { format!("held at {when}") };
    // With a single role, the role's own fact says how many blocks there are.
    let blocks = (held.roles.len() != 1).then(|| Fact::new("blocks", count(held.count)));
    let facts = blocks.into_iter().chain(held.roles.iter().map(role)).collect();
    let most = held.lines.first().and_then(|line| line.stack);
    // A row of one place lists its blocks, other rows list their lines.
    let is_one_place = is_line || matches!(own.which, Which::Size(_));
    let (groups, shown) = if is_one_place { largest_held(data, state, Some(roles), is_own) } else { Default::default() };
    let next = match own.which {
        Which::Role(role) => role.about().to_owned(),
        _ => String::new(),
    };
    Card {
        kind: kind.to_owned(),
        subject: Some(name),
        title: Bytes(held.bytes).to_string(),
        claim,
        facts,
        reasons: reasons(data, state, roles, is_own),
        // Several stacks may contain the line; this one belongs to its largest block.
        stacks: most.filter(|_| is_line).map(|stack| ("allocated", stack)).into_iter().collect(),
        lists: if is_one_place { Vec::new() } else { lines(&held).into_iter().collect() },
        next,
        held: groups,
        shown,
        ..Card::default()
    }
}

/// The kind of a row, and its name.
fn title(which: &Which, modules: &[ModuleHeld]) -> (&'static str, String) {
    let named = |path: &[String]| path.last().cloned().unwrap_or_default();
    match which {
        Which::Role(role) => ("Role", role.text().to_owned()),
        Which::Line(place) => (LINE, place.clone()),
        Which::Size(size) => ("Blocks of one size", Bytes(*size).to_string()),
        Which::Module(path) => {
            let held = find(which, modules);
            let kind = match held {
                Some(group) if !group.is_module && group.line.is_some() => LINE,
                Some(group) if !group.is_module => "Group",
                _ => "Module",
            };
            (kind, held.map_or_else(|| named(path), ModuleHeld::title))
        }
        Which::Directly(path) => ("In none of its parts", named(path)),
    }
}

fn find<'a>(which: &Which, modules: &'a [ModuleHeld]) -> Option<&'a ModuleHeld> {
    modules.iter().find_map(|m| if m.which() == *which { Some(m) } else { find(which, &m.parts) })
}

fn role(held: &RoleHeld) -> Fact {
    let probably = if held.is_probable() && held.role != Role::Unknown { "probably " } else { "" };
    let blocks = counted(held.count, "block", "blocks");
    Fact::new(short_role(held.role), format!("{probably}{} in {blocks}", Bytes(held.bytes)))
}

/// The lines of a module that hold the most.
fn lines(held: &Composition) -> Option<List> {
    let all = held.lines.iter().filter_map(|line| {
        let item = line.stack.map(Item::Stack).or(line.lifetimes.first().map(|&id| Item::Lifetime(id)))?;
        let note = if line.count == 1 { String::new() } else { format!("{} \u{d7}", count(line.count)) };
        Some(Line { item, name: line.place.clone(), tip: String::new(), note, bytes: line.bytes })
    });
    let lines: Vec<Line> = all.take(LINES).collect();
    let trailing = format!("{} of {}", lines.len(), count(held.lines.len() as u64));
    (!lines.is_empty()).then(|| List { title: "Largest lines".to_owned(), trailing, lines })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::app::data::samples;
    use vramscope_core::anatomy::roles::Rules;
    use vramscope_core::model::Progress;

    #[test]
    fn a_module_a_line_and_a_role_tell_what_they_hold_and_why() {
        let data = samples::device("gpt_train.pickle");
        let (device, tables) = (data.device(), &data.tables);
        let roles = Arc::new(Roles::build(&data.recording, device, tables, &Rules::default(), &Progress::new()).unwrap());
        let peak = tables.curves.peak_event();
        let state = tables.states.at(device, &tables.lifetimes, peak);
        let told = |which: Which| {
            let own = OwnBlocks::of(&data.recording, device, tables, &data.names, &roles, which);
            card(&data, &state, &roles, &own)
        };
        let whole = Composition::at(&data.recording, device, tables, &data.names, &roles, peak, |_| true);
        let module = whole.modules.iter().find(|m| m.repeats > 1).unwrap();
        let of_module = told(module.which());
        assert_eq!((of_module.kind.as_str(), of_module.subject.as_deref()), ("Module", Some(module.title().as_str())));
        assert_eq!(of_module.title, Bytes(module.bytes).to_string());
        assert!(of_module.claim.ends_with("% of what is held at the peak"), "{}", of_module.claim);
        let below: u64 = of_module.lists[0].lines.iter().map(|line| line.bytes).sum();
        assert_eq!(below, module.bytes, "its lines are all of it");
        let line = &whole.lines[0];
        let of_line = told(line.which());
        assert_eq!((of_line.kind.as_str(), of_line.title.as_str()), (LINE, Bytes(line.bytes).to_string().as_str()));
        assert_eq!(of_line.shown, (of_line.held.iter().map(|h| h.count).sum(), line.count));
        assert!(of_line.lists.is_empty() && of_line.stacks.len() == 1, "its stack");
        let activations = whole.role(Role::Activations);
        let of_role = told(Which::Role(Role::Activations));
        assert_eq!(of_role.reasons.iter().map(|why| why.bytes).sum::<u64>(), activations.bytes);
        assert!(of_role.reasons[0].sentence.starts_with("Each was made in the forward pass"), "{:?}", of_role.reasons);
        let guessed = told(Which::Role(Role::Workspaces));
        assert!(guessed.reasons.iter().any(|why| why.is_probable), "what is inferred says so");
    }
}
