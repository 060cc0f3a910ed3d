//! What makes up a peak, and what fills a full device.

use super::{of_tests, said, silent};
use crate::findings::diagnoses;
use crate::shared::open;
use crate::tape::{GIB, MIB, Tape};
use std::path::Path;
use vramscope_core::diagnose::findings::Finding;
use vramscope_core::model::{DeviceId, DeviceRecording, Recording, Segment, StackId};
use vramscope_core::units::Bytes;

#[test]
fn a_buffer_that_is_copied_to_grow() {
    let run = |grows: bool| {
        let mut t = Tape::new();
        let cat = t.stack(&[("/home/me/decode.py", "append")]);
        let mut held = None;
        for step in 0..600u64 {
            let size = if grows { 10 + 2 * step } else { 64 };
            let h = t.alloc(size * MIB, cat);
            if let Some(old) = held.replace(h) {
                t.free(old);
            }
        }
        t.finish()
    };
    said(&run(true), "grows_by_copy");
    silent(&run(false), "grows_by_copy");
}

/// `out = torch.cat([out, part])` in a loop. The old copies leave holes that no larger copy fits, and the result must be
/// contiguous.
#[test]
fn torch_cat_in_a_loop_is_no_matter_of_sizes_or_chunks() {
    let mut t = Tape::new();
    let model = t.stack(&[("/home/me/features.py", "forward"), ("/home/me/features.py", "main")]);
    let cat = t.stack(&[("/home/me/features.py", "main")]);
    let mut out = None;
    for step in 1..=40u64 {
        let part = t.alloc(16 * MIB, model);
        let longer = t.alloc(16 * MIB * step, cat);
        if let Some(shorter) = out.replace(longer) {
            t.free(shorter);
        }
        t.free(part);
    }
    let recording = t.finish();
    let found = said(&recording, "grows_by_copy");
    assert!(found.sentence.contains("40 times in 40 sizes") && found.sentence.contains("was ever in use"), "{}", found.sentence);
    silent(&recording, "variable_sizes");
    silent(&recording, "temporaries");
}

#[test]
fn one_block_that_makes_the_peak() {
    let run = |size: u64| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        t.alloc(512 * MIB, work);
        for step in 0..40 {
            let h = t.alloc(16 * MIB, work);
            if step == 20 {
                t.brief(size, work);
            }
            t.free(h);
        }
        t.finish()
    };
    assert_eq!(said(&run(600 * MIB), "spike").bytes, 600 * MIB);
    silent(&run(100 * MIB), "spike");
}

/// `x = f(x)`: each block is freed when the next one exists, so two are alive at once.
#[test]
fn blocks_that_follow_each_other() {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    t.alloc(512 * MIB, work);
    for _ in 0..40 {
        t.brief(16 * MIB, work);
    }
    let scale = t.stack(&[("/home/me/scale.py", "scale")]);
    let mut last = t.alloc(600 * MIB, scale);
    for _ in 0..4 {
        let next = t.alloc(600 * MIB, scale);
        t.free(last);
        last = next;
    }
    t.free(last);
    let found = said(&t.finish(), "spike");
    assert_eq!(found.bytes, 1200 * MIB);
    assert!(found.sentence.contains(&format!("2 blocks of {}", Bytes(600 * MIB))), "{}", found.sentence);
    assert_eq!(found.saving.unwrap().bytes(), 900 * MIB);
}

/// A block with these frames beside 2 GiB of other memory, live for most of the run or only briefly.
fn peak_with(frames: &[(&str, &str)], size: u64, is_brief: bool) -> Recording {
    let mut t = Tape::new();
    let other = t.stack(&[("/home/me/model.py", "build")]);
    let stack = t.stack(frames);
    t.alloc(2 * GIB, other);
    for step in 0..8 {
        for _ in 0..4 {
            t.brief(16 * MIB, other);
        }
        if step == 4 {
            let h = t.alloc(size, stack);
            t.brief(16 * MIB, other);
            if is_brief {
                t.free(h);
            }
        }
        t.step();
    }
    t.finish()
}

#[test]
fn a_loss_over_a_large_vocabulary() {
    let frames = [("/venv/lib/python3.12/site-packages/torch/nn/functional.py", "cross_entropy"), ("/home/me/train.py", "loss")];
    assert_eq!(said(&peak_with(&frames, GIB, true), "logits").bytes, GIB);
    silent(&peak_with(&frames, 64 * MIB, true), "logits");
    silent(&peak_with(&[("/home/me/train.py", "loss")], GIB, true), "logits");
}

#[test]
fn an_image_decoded_in_one_piece() {
    let frames = [("/venv/diffusers/models/autoencoders/autoencoder_kl.py", "decode"), ("/home/me/draw.py", "main")];
    assert_eq!(said(&peak_with(&frames, 2 * GIB, true), "image_decoder").bytes, 2 * GIB);
    silent(&peak_with(&frames, 512 * MIB, true), "image_decoder");
    silent(&peak_with(&[("/home/me/codec.py", "decode")], 2 * GIB, true), "image_decoder");
}

#[test]
fn an_optimizer_that_works_on_all_parameters_at_once() {
    let frames = [("/venv/lib/python3.12/site-packages/torch/optim/adam.py", "_multi_tensor_adam")];
    assert_eq!(said(&peak_with(&frames, GIB, true), "foreach_optimizer").bytes, GIB);
    // Memory that stays is state, not a spike.
    silent(&peak_with(&frames, GIB, false), "foreach_optimizer");
    silent(&peak_with(&frames, 128 * MIB, true), "foreach_optimizer");
}

#[test]
fn gradients_beside_the_buckets_they_are_copied_to() {
    let run = |has_gradients: bool| {
        let mut t = Tape::new();
        let ddp = t.stack(&[("/venv/lib/python3.12/site-packages/torch/nn/parallel/distributed.py", "_pre_forward")]);
        for _ in 0..12 {
            t.alloc(26 * MIB, ddp);
        }
        if has_gradients {
            for _ in 0..12 {
                t.alloc(26 * MIB, StackId::NONE);
                t.role("GRADIENT");
            }
        }
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        t.alloc(100 * MIB, work);
        t.finish()
    };
    assert_eq!(said(&run(true), "gradient_buckets").bytes, 312 * MIB);
    silent(&run(false), "gradient_buckets");
}

/// Memory of one role, with or without a request that fails.
fn filled_with(role: &str, fails: bool) -> Recording {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/train.py", "main")]);
    for _ in 0..10 {
        t.alloc(100 * MIB, work);
        t.role(role);
    }
    t.alloc(200 * MIB, work);
    if fails {
        t.oom(400 * MIB, 100 * MIB, work);
    }
    t.finish()
}

#[test]
fn optimizer_state_that_fills_the_device() {
    let full = filled_with("optimizer_state", true);
    assert_eq!(said(&full, "optimizer_state").bytes, 1000 * MIB);
    silent(&full, "activations");
    said(&under("optimizer_state", 1250 * MIB), "optimizer_state");
    // Nothing fails. The finding then says what a smaller state would save, when that is much.
    let saving = said(&filled_with("optimizer_state", false), "optimizer_state").saving.unwrap();
    // One byte per element, and four bytes per 256 elements.
    assert_eq!((saving.before, saving.after), (1200 * MIB, 200 * MIB + 10 * (100 * MIB * 65 / 256)));
    silent(&before_a_higher_peak("optimizer_state"), "optimizer_state");
    // Only the code that allocated it shows whose state it is.
    let of = |file: &str| {
        let mut t = Tape::new();
        let step = t.stack(&[(&format!("/site-packages/{file}"), "step"), ("/home/me/train.py", "main")]);
        t.alloc(1000 * MIB, step);
        t.role("optimizer_state");
        t.alloc(200 * MIB, StackId::NONE);
        t.finish()
    };
    let by = |file: &str| said(&of(file), "optimizer_state").advice;
    silent(&of("torch/optim/sparse_adam.py"), "optimizer_state");
    let lbfgs = said(&of("torch/optim/lbfgs.py"), "optimizer_state");
    assert!(lbfgs.sentence.contains("history_size") && lbfgs.saving.is_none(), "{lbfgs:?}");
    assert!(by("torch/optim/adam.py").starts_with("An 8-bit Adam "));
    assert!(by("torch/optim/sgd.py").starts_with("An 8-bit SGD "));
    assert!(by("torch/optim/nadam.py").starts_with("NAdam has no 8-bit version"));
    assert!(by("lion_pytorch/lion_pytorch.py").starts_with("An 8-bit Lion "));
    assert!(by("other/optimizer.py").starts_with("An optimizer with 8-bit state"));
}

/// Memory of one role, a third of the peak, and later blocks of other memory that are as high without it.
fn before_a_higher_peak(role: &str) -> Recording {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/train.py", "main")]);
    let mut held: Vec<_> = (0..4)
        .map(|_| {
            let h = t.alloc(100 * MIB, work);
            t.role(role);
            h
        })
        .collect();
    held.extend((0..8).map(|_| t.alloc(100 * MIB, work)));
    t.free_all(held);
    let later: Vec<_> = (0..12).map(|_| t.alloc(98 * MIB, work)).collect();
    t.free_all(later);
    t.finish()
}

#[test]
fn activations_that_fill_the_device() {
    let full = filled_with("activation", true);
    assert_eq!(said(&full, "activations").bytes, 1000 * MIB);
    silent(&full, "optimizer_state");
    silent(&filled_with("activation", false), "activations");
    // Without stacks no layers are known, but the three quarters are still reported.
    let mut bare = filled_with("activation", false);
    bare.devices[0].events.stack.fill(StackId::NONE);
    bare.devices[0].blocks.iter_mut().for_each(|b| b.stack = StackId::NONE);
    assert!(said(&bare, "activations").sentence.contains("call stacks were not recorded"));
    said(&under("activation", 1250 * MIB), "activations");
    silent(&under("activation", 4 * GIB), "activations");
}

/// The same without a failure, under a cap.
fn under(role: &str, limit: u64) -> Recording {
    let mut recording = filled_with(role, false);
    recording.devices[0].limit = Some(limit);
    recording
}

/// `zero_grad(set_to_none=False)` keeps gradients through the forward pass. Another program frees them.
#[test]
fn gradients_that_stay_are_told() {
    let recorded = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/warm");
        open(&folder.join(format!("{name}.pickle.zst")))
    };
    let found = said(&recorded("adam_inplace.python"), "gradients_kept");
    // 92.08 MiB of gradients, as counted by the program.
    assert_eq!(found.saving.unwrap().bytes(), found.bytes);
    silent(&recorded("own_adam_none.none"), "gradients_kept");
    // Three models are kept with their gradients. With gradients freed after each step, PyTorch counted 1,719,132,160 bytes at
    // the peak. A workspace of 32 MiB is mistaken for a gradient.
    let found = said(&recorded("../kinds/kept_models.python"), "gradients_kept");
    let after = found.saving.unwrap().after;
    assert!(after.abs_diff(1_719_132_160) <= 32 << 20, "{after}");
}

/// A hyperparameter search keeps the model of each trial. A moving average of the weights is not an earlier model.
#[test]
fn what_is_kept_beside_the_model_is_told() {
    let found = said(&of_tests("kinds/kept_models.python"), "earlier_model");
    let sentence = found.sentence.replace('\u{a0}', " ");
    assert!(sentence.contains("a model 4 times") && sentence.contains(" 3 of the earlier ones are"), "{sentence}");
    // Weights, gradients and two states of the three models: 80.19 MiB each.
    assert_eq!(found.bytes >> 20, 962);
    silent(&of_tests("kinds/dit_ema.python"), "earlier_model");
    silent(&of_tests("kinds/dpo.python.cap50"), "earlier_model");
    // One that each step creates again is reported as a leak.
    said(&of_tests("promised/old_optimizer"), "earlier_optimizer");
    silent(&of_tests("leak_optimizers.leak.python"), "earlier_optimizer");
    silent(&of_tests("kinds/vqgan.none"), "earlier_optimizer");
    said(&of_tests("promised/ckpt_on_gpu"), "loaded_copy");
    let loading = said(&of_tests("promised/load_peak"), "loaded_copy");
    assert!(loading.sentence.contains("loading makes the peak"), "{}", loading.sentence);
    silent(&of_tests("promised/data_on_gpu"), "loaded_copy");
    said(&of_tests("promised/data_on_gpu"), "waiting_batches");
    silent(&of_tests("plan/server.kv1024"), "waiting_batches");
    said(&of_tests("promised/deep_copy_best"), "kept_copies");
    silent(&of_tests("promised/old_optimizer"), "kept_copies");
}

/// PyTorch counted 1,424,829,952 bytes when the evaluation used the batch size of training.
#[test]
fn an_evaluation_with_a_larger_batch_is_told() {
    let found = said(&of_tests("promised/eval_big"), "larger_evaluation");
    assert!(found.sentence.contains("21.3 times as large as in training"), "{}", found.sentence);
    let after = found.saving.unwrap().after;
    assert!(after.abs_diff(1_424_829_952) * 100 < after, "{after}");
    silent(&of_tests("promised/eval_big"), "spike");
    silent(&of_tests("promised/kept_outputs"), "larger_evaluation");
    silent(&of_tests("promised/predict"), "larger_evaluation");
}

/// Outputs kept in a list, in gradient accumulation and in a validation; scores of which the loss reads only the last;
/// differences of all pairs. Beside each, PyTorch's count for the fixed program.
#[test]
fn outputs_that_nobody_needs_are_told() {
    let is_near = |found: &Finding, counted: u64| {
        let after = found.saving.unwrap().after;
        assert!(after.abs_diff(counted) * 50 < counted, "{after} {counted}");
    };
    is_near(&said(&of_tests("promised/accum_outputs"), "kept_results"), 945_743_360);
    let found = said(&of_tests("promised/val_cat"), "kept_results");
    let sentence = found.sentence.replace('\u{a0}', " ");
    assert!(sentence.contains("39 results of _utils.py:28") && sentence.contains("joins them"), "{sentence}");
    is_near(&found, 1_384_532_480);
    silent(&of_tests("promised/accumulated"), "kept_results");
    silent(&of_tests("promised/eval_big"), "kept_results");
    // Inputs of checkpointed layers and inner passes of second derivatives are needed.
    silent(&of_tests("promised/wide_checkpointed"), "kept_results");
    silent(&of_tests("kinds/maml.python.cap85"), "kept_results");
    // A sampler's images: 50 steps, of which only the last image is used.
    is_near(&said(&of_tests("promised/all_latents"), "kept_results"), 1_090_834_432);
    is_near(&said(&of_tests("promised/logits_last"), "unread_scores"), 1_678_626_816);
    silent(&of_tests("promised/loss"), "unread_scores");
    silent(&of_tests("promised/summed_micro"), "unread_scores");
    // The matrix product of torch.cdist needs less memory than remains without the differences.
    let after = said(&of_tests("promised/pairwise_expand"), "all_pairs").saving.unwrap().after;
    assert!((127_846_400..256_000_000).contains(&after), "{after}");
    silent(&of_tests("promised/broadcast_loss"), "all_pairs");
    silent(&of_tests("promised/logits_last"), "all_pairs");
    // Gradients of each of 128 samples, by torch.func.
    silent(&of_tests("promised/sample_grads"), "all_pairs");
}

/// Scores for all 768 positions of a prompt while later passes compute one token; scores for 512 positions of which only the last
/// is read. Beside each, PyTorch's count for the fixed program.
#[test]
fn scores_of_a_whole_prompt_are_told() {
    let found = said(&of_tests("promised/decode_loop"), "unread_scores");
    assert!(found.sentence.contains("768 positions"), "{}", found.sentence);
    let after = found.saving.unwrap().after;
    assert!(after.abs_diff(300_683_264) * 1000 < after, "{after}");
    let after = said(&of_tests("promised/prefill_logits"), "unread_scores").saving.unwrap().after;
    assert!(after.abs_diff(429_064_192) * 50 < after, "{after}");
    // A hidden layer, and a loss that reads every position.
    silent(&of_tests("promised/autocast_no_grad"), "unread_scores");
    silent(&of_tests("nograd_missing.start.python"), "unread_scores");
}

/// `create_graph=True` without a second derivative. A gradient penalty and Hessian-vector products do use the graph.
#[test]
fn a_graph_of_the_backward_pass_is_told() {
    // The fixed program's backward pass frees activations while it makes gradients. The finding assumes that they stay to its
    // end.
    let after = said(&of_tests("promised/penalty_graph"), "backward_graph").saving.unwrap().after;
    assert!((665_010_176..798_000_000).contains(&after), "{after}");
    let after = said(&of_tests("promised/gan_graph"), "backward_graph").saving.unwrap().after;
    assert!(after.abs_diff(1_137_913_856) * 100 < after, "{after}");
    silent(&of_tests("promised/penalty_graph"), "last_result");
    silent(&of_tests("promised/wgan_gp"), "backward_graph");
    silent(&of_tests("kinds/hessian.python"), "backward_graph");
    silent(&of_tests("kinds/penalty.python"), "backward_graph");
    silent(&of_tests("kinds/maml.python.cap85"), "backward_graph");
    silent(&of_tests("promised/sample_grads"), "backward_graph");
}

/// A gradient for each of 128 samples, by vmap and by hooks.
#[test]
fn gradients_of_every_sample_are_told() {
    for name in ["promised/sample_grads", "promised/sample_hooks"] {
        let found = said(&of_tests(name), "sample_gradients");
        assert!(found.sentence.contains("128 times as large as weights"), "{}", found.sentence);
        silent(&of_tests(name), "all_pairs");
    }
    silent(&of_tests("promised/resnet"), "sample_gradients");
}

/// A table of two million rows, of which a batch reads 81,920. PyTorch counted 624,046,080 bytes with `sparse=True`.
#[test]
fn a_dense_gradient_of_a_table_is_told() {
    let found = said(&of_tests("promised/dense_embedding"), "dense_embedding");
    let sentence = found.sentence.replace('\u{a0}', " ");
    assert!(sentence.contains("2,000,000 rows") && sentence.contains("at most 81,920"), "{sentence}");
    let after = found.saving.unwrap().after;
    assert!(after.abs_diff(623_413_760) * 20 < after, "{after}");
    silent(&of_tests("promised/loss"), "dense_embedding");
}

/// A search over widths whose results hold models and optimizers. PyTorch counted 320,554,496 bytes without them. A growing
/// network trains all its blocks, and its new optimizer replaces the old one at once.
#[test]
fn models_of_a_search_are_told_and_blocks_of_one_that_grows_are_not() {
    let found = said(&of_tests("promised/trials"), "earlier_model");
    assert!(found.sentence.replace('\u{a0}', " ").contains("made a model 6 times"), "{}", found.sentence);
    let after = found.saving.unwrap().after;
    assert!(after.abs_diff(320_556_032) * 50 < after, "{after}");
    silent(&of_tests("promised/progressive"), "earlier_model");
    silent(&of_tests("promised/progressive"), "saw_tooth");
}

/// `zero_grad()` between `backward()` and `step()`, so nothing is trained.
#[test]
fn a_step_without_gradients_is_told() {
    let found = said(&of_tests("promised/zero_before_step"), "zero_before_step");
    assert!(found.sentence.replace('\u{a0}', " ").contains("in each of the 6 steps"), "{}", found.sentence);
    silent(&of_tests("promised/eval_big"), "zero_before_step");
    silent(&of_tests("promised/logits_last"), "zero_before_step");
    // With gradient_as_bucket_view=True, the gradients that the step reads are in DDP's buckets.
    silent(&of_tests("promised/ddp_views"), "zero_before_step");
}

/// The model runs a second time for the accuracy. That graph is freed before the backward pass, which uses the first one.
#[test]
fn a_second_pass_for_a_metric_is_told() {
    let found = said(&of_tests("promised/double_forward"), "unused_graph");
    assert!(found.sentence.replace('\u{a0}', " ").contains("keeps 1,007.31 MiB in 140 blocks"), "{}", found.sentence);
    silent(&of_tests("promised/resnet"), "unused_graph");
    // A GELU in the same file, whose `forward` has tensors as large as the scores: of minGPT's 35 blocks of that size, 12 are
    // scores.
    let scores = said(&of_tests("kinds/chargpt.python"), "attention_scores");
    assert!(scores.sentence.replace('\u{a0}', " ").starts_with("12 blocks of up to 24 MiB each"), "{}", scores.sentence);
    // pix2pix saves samples of ten images between steps of eight, with autograd enabled.
    let samples = said(&of_tests("kinds/pix2pix.python"), "unused_graph");
    let sentence = samples.sentence.replace('\u{a0}', " ");
    assert!(sentence.contains("called at pix2pix.py:112 keeps 837.23 MiB in 80 blocks"), "{sentence}");
}

/// A resumed run keeps the checkpoint it loaded. The optimizer took over its states, so only the weights are superfluous.
#[test]
fn the_weights_of_a_checkpoint_that_a_run_was_resumed_from_are_told() {
    let found = said(&of_tests("promised/resume_ckpt"), "loaded_copy");
    assert_eq!(found.bytes >> 20, 166, "{}", found.sentence);
}

/// Softmax, logarithm and gather in the program's own lines, where `F.cross_entropy` needs a third of the memory.
#[test]
fn a_cross_entropy_by_hand_is_told() {
    let found = said(&of_tests("promised/hand_ce"), "loss_by_hand");
    assert!(found.sentence.contains("3 more tensors as large, made at habits.py:65 and habits.py:64"), "{}", found.sentence);
    silent(&of_tests("promised/loss"), "loss_by_hand");
    // The program's own log-softmax, from which it gathers the scores of the tokens.
    let found = said(&of_tests("promised/token_logps"), "logits");
    assert!(found.sentence.contains("made by the loss at more.py:28"), "{}", found.sentence);
    silent(&of_tests("promised/token_logps"), "loss_by_hand");
    silent(&of_tests("promised/logits_last"), "loss_by_hand");
}

/// State of an earlier optimizer should be freed, not made smaller. Gradients of earlier models are not those of the previous
/// step.
#[test]
fn what_is_left_over_is_told_as_that() {
    let found = said(&of_tests("kinds/kept_models.python"), "gradients_kept");
    assert!(found.sentence.contains("gradients of the step before and of earlier models."), "{}", found.sentence);
    silent(&of_tests("promised/val_cat"), "spike");
    // The history of a single LBFGS grows for as many iterations as it keeps.
    silent(&of_tests("promised/lbfgs"), "earlier_optimizer");
    assert_eq!(said(&of_tests("promised/lbfgs"), "optimizer_state").bytes >> 20, 544);
    // Two states for 139 MiB of weights: those of the current optimizer.
    assert_eq!(said(&of_tests("promised/old_optimizer"), "optimizer_state").bytes >> 20, 278);
}

/// Squares are common among sizes, so only one that exceeds everything else is reported.
#[test]
fn a_loss_of_all_pairs_is_told() {
    said(&of_tests("promised/broadcast_loss"), "broadcast");
    silent(&of_tests("kinds/bart.none.cap85"), "broadcast");
    // 4,096 images of 64 × 64 pixels, with a number for each.
    silent(&of_tests("kinds/wgan_gp.python.cap70"), "broadcast");
}

/// What a later step needs is mentioned when no later step was recorded.
#[test]
fn a_first_step_is_no_peak_of_the_run() {
    said(&of_tests("plan/gpt.b8.one_step"), "first_step");
    silent(&of_tests("plan/gpt.b8"), "first_step");
}

/// Memory that no other rule covers is reported as what it is, also without stacks.
#[test]
fn activations_and_temporaries_that_make_the_peak_are_told() {
    let found = said(&of_tests("kinds/penalty.python"), "batch");
    assert_eq!(found.title, "Activations and temporaries make the peak");
    assert!(said(&of_tests("kinds/vqgan.none"), "batch").sentence.contains("are probably activations"));
    silent(&of_tests("kinds/kept_models.python"), "batch");
}

/// Weights that make the peak are reported. What is live in a file without a history is not called the peak. Gradients larger
/// than the weights are not believed.
#[test]
fn a_model_that_makes_the_peak_is_told() {
    let mut t = Tape::new();
    t.alloc(1000 * MIB, StackId::NONE);
    let mut found = diagnoses(&t.finish()).remove(0);
    found.of_model = [1000 * MIB, 0, 0];
    let said = found.model_sentence().unwrap();
    assert!(said.starts_with("Weights are 100 % of the peak: ") && said.ends_with("a smaller batch does not."), "{said}");
    found.reserved_then = Some(1000 * MIB);
    let said = found.model_sentence().unwrap();
    assert!(!said.contains("peak") && !said.contains("batch"), "{said}");
    found.reserved_then = Some(2000 * MIB);
    let said = found.model_sentence().unwrap().replace('\u{a0}', " ");
    assert!(said.ends_with("1.95 GiB is reserved, so more was in use before."), "{said}");
    found.reserved_then = None;
    found.of_model = [450 * MIB, 550 * MIB, 0];
    assert_eq!(found.model_sentence(), None);
    let mut t = Tape::new();
    let load = t.stack(&[("/x/torch/nn/modules/module.py", "_apply"), ("/home/me/train.py", "main")]);
    t.alloc(1000 * MIB, load);
    let said = diagnoses(&t.finish())[0].model_sentence().unwrap();
    assert!(said.contains("Nothing but loading was recorded"), "{said}");
}

/// When a program fails, its other devices are mentioned if they hold far less.
#[test]
fn devices_that_hold_less_than_the_one_that_fails_are_named() {
    let run = |other: u64| {
        let mut recording = filled_with("activation", true);
        let (mut second, mut quiet) = (recording.devices[0].clone(), recording.devices[0].clone());
        for (device, index, size) in [(&mut second, 1, other), (&mut quiet, 2, 0)] {
            *device = DeviceRecording { id: DeviceId { index, ..device.id }, ..DeviceRecording::default() };
            device.segments.push(Segment { size, ..recording.devices[0].segments[0].clone() });
        }
        recording.devices.extend([second, quiet]);
        said(&recording, "out_of_memory").sentence.replace('\u{a0}', " ")
    };
    let told = run(300 * MIB);
    assert!(told.contains("the other devices of this program reserve less: GPU 1 300 MiB."), "{told}");
    assert!(!run(900 * MIB).contains("the other devices") && !run(4 * MIB).contains("the other devices"));
}

/// Each layer keeps two unused tensors to the end of the pass. A program that generates text needs them.
#[test]
fn keys_and_values_that_nothing_uses() {
    let run = |layers: usize, trains: bool| {
        let mut t = Tape::new();
        let module = ("/x/torch/nn/modules/module.py", "_call_impl");
        let load = t.stack(&[("/x/torch/nn/modules/module.py", "_apply"), ("/home/me/embed.py", "main")]);
        let line = |t: &mut Tape, file| {
            t.stack(&[(file, "forward"), module, ("/home/me/model.py", "forward"), module, ("/home/me/embed.py", "main")])
        };
        let (keys, values, work) =
            (line(&mut t, "/home/me/rotary.py"), line(&mut t, "/home/me/value.py"), line(&mut t, "/home/me/mlp.py"));
        let backward = t.stack(&[("/x/torch/autograd/graph.py", "_engine_run_backward"), ("/home/me/embed.py", "main")]);
        t.alloc(200 * MIB, load);
        let mut kept = Vec::new();
        for _ in 0..layers {
            kept.push(t.alloc(20 * MIB, keys));
            kept.push(t.alloc(20 * MIB, values));
            for _ in 0..6 {
                t.brief(30 * MIB, work);
            }
        }
        if trains {
            t.brief(30 * MIB, backward);
        }
        t.free_all(kept);
        t.finish()
    };
    let found = said(&run(12, false), "unused_cache");
    assert_eq!(found.bytes, 480 * MIB, "{found:?}");
    assert!(found.remedy.as_deref().is_some_and(|line| line.contains("use_cache=False")), "{found:?}");
    silent(&run(12, true), "unused_cache");
    silent(&run(2, false), "unused_cache");
}

/// `torch.backends.cudnn.benchmark` is named as the reason for emptied caches and for the peak, and is not recommended.
#[test]
fn cudnn_benchmark_is_named() {
    let searches = of_tests("promised/cudnn_search");
    let flushes = said(&searches, "cache_flushes");
    assert!(flushes.title.contains("cuDNN's search"), "{}", flushes.title);
    let spike = said(&searches, "spike");
    assert_eq!(spike.remedy.as_deref(), Some("torch.backends.cudnn.benchmark = False"));
}
