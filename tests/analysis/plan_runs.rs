//! The recording of a planned run has the figures of its plan.

use vramscope_core::anatomy::roles::Rules;
use vramscope_core::anatomy::{Composition, Roles, steps::Steps};
use vramscope_core::formats;
use vramscope_core::model::Progress;
use vramscope_core::plan::{Change, Size};
use vramscope_core::tables::{DeviceTables, Quantity, StackNames};

use crate::plan::{gpt, plan_of, recorded, setting};
use crate::shared::{corpus, open, tables};

#[test]
fn a_run_that_never_was_opens_as_a_recording_with_the_same_peak() {
    let plan = gpt(&[4, 8]);
    let (size, under) = (Size::of("batch", 16), setting("", None));
    for changes in [vec![], vec![Change::Checkpoint(None)]] {
        let recording = plan.recording(&size, &under, &changes).unwrap();
        let tables = tables(&recording.devices[0]);
        assert_eq!(tables.disagreement, None);
        let peak = tables.curves.peak(vramscope_core::tables::Quantity::Reserved).0;
        let told = plan.change(&changes, &size, &under, None).unwrap();
        assert_eq!(peak, told.peak_reserved_bytes);
        assert!(recording.source.name.starts_with("plan: batch 16"), "{}", recording.source.name);
    }
}

/// Checkpointed layers run their forward pass twice. The steps come from the plan and are not detected again.
#[test]
fn a_run_that_never_was_has_the_steps_of_its_plan() {
    let mut plans = vec![(gpt(&[4, 8]), 16)];
    if let Some(corpus) = corpus() {
        let file = |batch: u64| (corpus.join(format!("plan_open/resnet_b{batch}_s224.pickle")), format!("batch={batch}"));
        plans.push((plan_of(&[file(16), file(32)]).unwrap(), 64));
    }
    for (plan, batch) in plans {
        let steps = plan.model().unwrap().program.steps;
        for (changes, conf) in [("", ""), ("checkpoint", "expandable_segments:True"), ("offload", ""), ("8bit", "")] {
            let changes = if changes.is_empty() { vec![] } else { Change::parse(changes).unwrap() };
            let recording = plan.recording(&Size::of("batch", batch), &setting(conf, None), &changes).unwrap();
            let tables = tables(&recording.devices[0]);
            let found = Steps::find(&recording, &recording.devices[0], &tables);
            assert_eq!(found.len(), steps, "{changes:?}, {:?}", found.source);
            // Each step allocates what the previous one did.
            let made = |step: usize| {
                let [from, to] = [found.bounds[step], found.bounds[step + 1]].map(|event| event as usize);
                let allocs = recording.devices[0].events.action[from..to].iter();
                allocs.filter(|a| **a == vramscope_core::model::Action::Alloc).count()
            };
            // What the recording keeps to its end is not moved to the host.
            if !changes.contains(&Change::Offload) {
                assert_eq!(made(steps - 1), made(steps - 2), "{changes:?}");
            }
        }
    }
}

#[test]
fn a_saved_run_that_was_never_made_says_so_when_it_is_opened_again() {
    let plan = gpt(&[4]);
    let recording = plan.recording(&Size::of("batch", 4), &setting("", None), &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saved.pickle");
    vramscope_core::diagnose::export::save(&recording, &file, &[], false).unwrap();
    let again = open(&file);
    assert_eq!(again.source.format, vramscope_core::model::Format::Plan);
    assert!(again.source.format.never_ran() && again.devices[0].events.len() == recording.devices[0].events.len());
}

#[test]
fn roles_add_up_to_the_peak() {
    let plan = gpt(&[4, 8]);
    let (size, own) = (Size::of("batch", 16), setting("", None));
    let at = plan.at(&size, &own);
    assert_eq!(at.by_role.values().sum::<u64>(), at.peak_allocated_bytes, "{:?}", at.by_role);
    // They include the gradients that wait for the other passes.
    let passes = plan.accumulated(4, &size, &own).unwrap();
    assert_eq!(passes.by_role.values().sum::<u64>(), passes.peak_allocated_bytes, "{:?}", passes.by_role);
    assert!(at.by_role.keys().all(|name| vramscope_core::anatomy::Role::from_name(name).is_some()), "{:?}", at.by_role);
}

/// The plan's roles match a recording at that size, whether or not the plan used it. Whole blocks, as in the Overview.
#[test]
fn roles_are_those_of_the_recording() {
    let progress = Progress::new();
    let own = plan_of(&[(recorded("gpt.b8", "").0, "batch=8".to_owned())]).unwrap();
    for (plan, batch) in [(own, 8), (gpt(&[4, 8]), 16)] {
        let (file, _) = recorded(&format!("gpt.b{batch}"), "");
        let recording = formats::open(&file, &progress).unwrap();
        let device = &recording.devices[recording.busiest_device().unwrap()];
        let tables = DeviceTables::build(device, &progress).unwrap();
        let roles = Roles::build(&recording, device, &tables, &Rules::default(), &progress).unwrap();
        let (peak, event) = tables.curves.peak(Quantity::Allocated);
        let names = StackNames::of(&recording.stacks);
        let held = Composition::at(&recording, device, &tables, &names, &roles, event, |_| true);
        let at = plan.at(&Size::of("batch", batch), &setting("", None));
        assert_eq!(at.peak_allocated_bytes, peak);
        let recorded: Vec<(&str, u64)> = held.roles.iter().filter(|r| r.bytes > 0).map(|r| (r.role.name(), r.bytes)).collect();
        let planned: Vec<(&str, u64)> =
            recorded.iter().map(|(name, _)| (*name, at.by_role.get(name).copied().unwrap_or(0))).collect();
        assert_eq!(planned, recorded, "{batch}");
    }
}
