//! Plans from a single recording: memory that does not grow in proportion, and steps cut short by a failure.

use std::path::Path;

use vramscope_core::plan::{Change, Plan, Size};

use crate::plan::{gpt, plan_of, setting};

fn promised(name: &str, at: &str) -> Plan {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/promised");
    plan_of(&[(folder.join(format!("{name}.pickle.zst")), at.to_owned())]).unwrap()
}

fn says(plan: &Plan, part: &str) -> bool {
    plan.notes().iter().any(|note| note.contains(part))
}

/// Five matrices of 1 GiB at a batch of 16,384, and of 4 GiB at twice the batch.
#[test]
fn a_matrix_of_all_with_all_may_grow_with_the_square() {
    let plan = promised("broadcast_loss", "batch=16384");
    let p = plan.at(&Size::of("batch", 32_768), &setting("", None));
    let [low, high] = p.allocated_span;
    assert!(low <= 20 << 30 && 20 << 30 <= high, "{:?}", p.allocated_span);
    assert!((20 << 30..21 << 30).contains(&p.peak_allocated_bytes), "the likely size: {}", p.peak_allocated_bytes);
    assert!(says(&plan, "16,384 \u{d7} 16,384") && says(&plan, "square of batch"), "{:?}", plan.notes());
    assert!(!says(&gpt(&[16]), "square"), "nothing of a language model is");
}

/// Trained with 24 images, evaluated with 512.
#[test]
fn an_evaluation_with_a_batch_of_its_own_stays_as_it_is() {
    let plan = promised("eval_big", "batch=24");
    let p = plan.at(&Size::of("batch", 48), &setting("", None));
    // The evaluation makes the peak and does not change.
    let counted = 3_253_035_008u64;
    assert!(p.peak_allocated_bytes.abs_diff(counted) < counted / 50, "{} of {counted}", p.peak_allocated_bytes);
    assert!(p.allocated_span[1] > counted * 3 / 2, "it may grow after all: {:?}", p.allocated_span);
    assert!(says(&plan, "21.33 times the batch of training"), "{:?}", plan.notes());
    assert!(!says(&gpt(&[16]), "of training"));
}

/// It failed in its first forward pass, so logits, loss and backward pass are not recorded.
#[test]
fn what_fails_before_its_first_step_has_ended_fits_for_sure_in_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/full");
    let plan = plan_of(&[(folder.join("gpt2.pickle.zst"), "batch=64".to_owned())]).unwrap();
    let (size, cap) = (Size::of("batch", 8), 80 << 30);
    let setting = setting("", Some(cap));
    assert!(plan.has_no_step() && !gpt(&[8]).has_no_step());
    assert_eq!(plan.at(&size, &setting).ends(cap), "may fit");
    let largest = plan.largest("batch", &size, &setting);
    assert!(largest.span[0] == 0 && largest.span[1] > 32, "{largest:?}");
    let change = |change: &str| {
        let change = Change::parse(change).unwrap();
        plan.change(&change, &size, &setting, Some("batch")).unwrap()
    };
    let checkpointed = change("checkpoint");
    assert_eq!((checkpointed.ends(cap), checkpointed.largest_span.unwrap()[0]), ("may fit", 0));
    assert!(change("no_grad").reason.is_some(), "a backward pass would have followed");
}

/// The failures were caught. What fits does so only as far as its requests were recorded.
#[test]
fn what_a_failed_step_would_have_asked_for_is_not_promised() {
    let plan = promised("caught_oom", "batch=8");
    assert!(plan.horizon().is_some_and(|horizon| horizon.is_caught));
    let size = Size::of("batch", 8);
    let p = plan.at(&size, &setting("", Some(8 << 30)));
    assert!(!p.certain, "a step is not whole");
    let said = p.verdict("8 GiB", 8 << 30, plan.horizon());
    assert!(said.ends_with("fits 8 GiB, as far as its requests were recorded"), "{said}");
    let open = plan.left_open().unwrap();
    assert!(open.contains("would have requested next was not recorded") && open.contains("Of the steps that ended"), "{open}");
    // Under its own cap it is known to fail.
    let own = plan.programs()[0].failed_under;
    assert!(plan.at(&size, &plan.own_setting(own)).oom);
    assert!(gpt(&[8]).left_open().is_none());
    // Memory held by failed passes was kept for their backward passes, which never ran.
    let no_grad = plan.change(&[Change::NoGrad], &size, &setting("", None), None).unwrap();
    assert!(no_grad.reason.is_some(), "{no_grad:?}");
    assert!(p.by_role["activations"] > 8 * p.by_role.get("temporaries").copied().unwrap_or(0), "{:?}", p.by_role);
}
