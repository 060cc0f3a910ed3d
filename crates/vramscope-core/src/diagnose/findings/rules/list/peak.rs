//! What makes up the peak.

use super::super::Run::{One, Several};
use super::super::{BATCH, FIRST_STEP, GATHERED, Rule, SPIKE, TEMPORARIES, UNTRAINED, ZERO_BEFORE_STEP, rule};
use super::super::{
    autocast, backward, beside, broadcast, copies, evaluation, gathered, kept, loss, optimizer, peak, rebuilt, results, untrained,
};
use crate::diagnose::findings::Class;

pub(super) const RULES: &[Rule] = &[
    rule("grows_by_copy", Class::Peak, One(copies::copies))
        .finds("A buffer that is copied to grow")
        .when("one place, or several that make as many and as much (keys and values), makes ≥ 50 % of the bytes of ≥ 500 allocations, in ≥ 50 sizes, ≥ 8 times the peak in all; for ≥ 80 % of its allocations a somewhat smaller one from there was live and went first; or a line makes ≥ 8 allocations over 1 MiB like that, ≥ 80 % of them in sizes of their own, and half as many bytes as were reserved and never used")
        .source("rows 7, 21")
        .measured("2 of 2 programs")
        .shown_by("`serve_oom.pickle.gz`; corpus: `demo/kv_decode.default.pickle`; generated: a cache that is appended to"),
    rule("saw_tooth", Class::Peak, One(beside::saw_tooth))
        .finds("Memory that climbs over steps and falls at once")
        .when("≥ 7 steps; ≥ 3 teeth in their floors, each rising ≥ 3 steps, by ≤ 3/4 in any one of them, and falling > 1/5 of the range; the highest ≥ 1/4 of the peak, peak ≥ 64 MiB")
        .source("row 6")
        .shown_by("generated: blocks kept for five steps, freed together; the scenario of cycles"),
    rule(SPIKE, Class::Peak, One(peak::spike))
        .finds("One short-lived block makes the peak, or several of its size at once")
        .when("the largest block at the peak ≥ 256 MiB, live for ≤ 1/10 of a step, and either ≥ 1/3 of the peak, or with others of its size ≥ 1/2 and a quarter of them lowers the peak by ≥ 10 % (no figure where tensors are joined); and no other finding is about it. Or it is a trial of cuDNN: freed at once, after which the same call empties the cache; and without such trials the peak is ≥ 10 % lower")
        .source("row 17")
        .measured("5 of 5")
        .shown_by("generated: one large block for two events; SupCon and a DDPM with `cudnn.benchmark`, whose peaks without it were 24.86 (told: 24.87) and 3.95 GiB (3.94)"),
    rule("logits", Class::Peak, One(loss::logits))
        .finds("The loss over a large vocabulary makes the peak")
        .when("blocks at the peak with a frame that computes the loss (`cross_entropy`, `log_softmax`, `nll_loss`, `lm_head`), or made of the scores by the program's own lines and followed by one number for each row, ≥ 32 MiB, with the logits and those of its backward pass ≥ 64 MiB and ≥ 20 % of it")
        .source("row 17")
        .measured("5 of 7 programs")
        .shown_by("generated: 1 GiB under `cross_entropy`"),
    rule("loss_by_hand", Class::Peak, One(loss::loss_by_hand))
        .finds("A cross entropy by hand, of several tensors as large as the scores")
        .when("a training step; at the peak the last result of a linear layer before the loss and ≥ 3 tensors of its size, or twice that, made behind it without a frame of the loss, ≥ 64 MiB and ≥ 20 % of it; then one of ≤ 1/256 of its size and > 256 bytes")
        .source("measured on own recordings")
        .measured("1 of 1 program")
        .shown_by("`promised/hand_ce` of the tests' recordings"),
    rule("image_decoder", Class::Peak, One(peak::image_decoder))
        .finds("Decoding the image makes the peak")
        .when("a block ≥ 1 GiB at the peak with a frame `decode` in a file of a VAE or autoencoder")
        .source("row 29")
        .shown_by("generated: 2 GiB under `autoencoder_kl.py decode`"),
    rule("foreach_optimizer", Class::Peak, One(optimizer::foreach_optimizer))
        .finds("Temporaries of optimizer.step(), at the peak or not")
        .when("blocks with a frame `_multi_tensor_*` or `_foreach_*`, live for less than a step: at once ≥ 64 MiB (256 MiB where the peak stays) and ≥ 5 % of the peak")
        .source("row 15")
        .measured("4 of 5")
        .shown_by("generated: 1 GiB under `_multi_tensor_adam`"),
    rule("gradient_buckets", Class::Peak, One(optimizer::gradient_buckets))
        .finds("Gradients held twice, in DDP's buckets too")
        .when("blocks at the peak made in DDP's set-up or first forward: ≥ 256 MiB, ≥ 5 % of it, and gradients ≥ half as much")
        .source("row 16")
        .shown_by("generated: buckets beside gradients"),
    rule("unused_graph", Class::Peak, One(kept::unused_graph))
        .finds("A graph that autograd keeps and no backward pass uses")
        .when("a forward pass without a backward pass keeps blocks of ≥ 5 stacks, ≥ 1/5 of what it makes: ≥ 64 MiB, and with what the pass before the recording left ≥ 10 % of the peak; or a call beside the one whose graph the backward pass uses keeps ≥ 4/5 as much, or the same blocks larger or smaller by one factor, and frees them before; nothing failed on any device")
        .source("measured: 42 of 210 published recordings")
        .measured("18 of 18")
        .shown_by("generated: layers under `forward` that stay"),
    rule("autocast_copies", Class::Peak, One(autocast::autocast_copies))
        .finds("Half-precision copies of the weights")
        .when("blocks half as large as weights, made beside the result they serve, kept to the end of forward (a saving only where no graph keeps them too): ≥ 1/8 of the weights' bytes, ≥ 64 MiB and ≥ 10 % of the peak")
        .source("measured: 32 of 210 published recordings")
        .measured("12 of 12")
        .shown_by("generated: a cast beside the result of each layer"),
    rule("attention_scores", Class::Peak, One(kept::attention_scores))
        .finds("Attention scores that fused attention would not keep")
        .when("blocks at the peak from a function named after attention or one that takes a softmax outside of the loss, and that calls no fused kernel, but for copies that a matrix product makes of its operands (where C++ frames show it), of one size ≥ 1 MiB: from a softmax, or from ≥ 2 lines of a function of that name that has no softmax of another size and no second size of its own, at the peak or else in its step, and none from an activation function; or of half that size: ≥ 64 MiB and ≥ 10 % of the peak")
        .source("measured on published recordings")
        .measured("19 of 19")
        .shown_by("generated: three blocks of one size in `attention`"),
    rule("written_out", Class::Peak, One(kept::written_out))
        .finds("A formula in Python that keeps several tensors a layer")
        .when("one line outside attention, the loss and torch's own modules, called from one place, has ≥ 3 activations of one size, and none but of half or double that size, in each of ≥ 2 like layers, ≥ 2 each time it runs: ≥ 64 MiB and ≥ 10 % of the peak")
        .source("measured on published recordings; a GELU written out in Transformers")
        .measured("3 of 5 programs")
        .shown_by("generated: four blocks a layer from one line"),
    rule(GATHERED, Class::Peak, Several(gathered::gathered))
        .finds("What a library gathers on the GPU: the Trainer's predictions, generate()'s scores")
        .when("blocks at the peak made by Transformers' trainer_pt_utils.py, or at least 16 of one size by its generation/utils.py: ≥ 64 MiB and ≥ 10 % of it")
        .source("measured on an H200")
        .measured("1 of 2 programs")
        .shown_by("generated: predictions that a Trainer gathers"),
    rule("moved_gradients", Class::Peak, One(gathered::moved_gradients))
        .finds("Gradients that `model.to()` moved with a model that nothing then trains")
        .when("blocks at the peak that `Module._apply` made from its line for gradients: ≥ 64 MiB and ≥ 10 % of it; no backward pass and no optimizer in the recording")
        .source("found in a published recording")
        .measured("1 of 1 program")
        .shown_by("generated: a trained model that is moved"),
    rule(UNTRAINED, Class::Peak, One(untrained::untrained_gradients))
        .finds("Gradients for weights that no optimizer updates: a teacher or frozen layers run with a graph")
        .when("in a backward pass after an optimizer step, ≥ 4 gradients of sizes for which the optimizer keeps no state, while it keeps the same number of blocks for each of ≥ 4 others, or one for each where it is an Adam, which keeps two (a second model of the same sizes), and some without state are no larger than all that have it: ≥ 32 MiB, or ≥ 16 MiB with ≥ 64 MiB of activations that only they need, which are freed after the last gradient that has state")
        .source("measured on an H200")
        .measured("3 of 4 programs")
        .shown_by("`tests/recordings/promised/distill`"),
    rule("broadcast", Class::Peak, One(broadcast::broadcast))
        .finds("Predictions and targets of two shapes, which a loss compares each with each")
        .when("known steps of training; the largest block at the peak is a square matrix of 2, 4 or 8 bytes a value, a vector of its side is among the three blocks made before the first such block of the step, and another is live; it is ≥ 4 times as large as all other blocks, and all such matrices are ≥ 64 MiB and ≥ 50 % of the peak")
        .source("measured on own recordings")
        .measured("1 of 1 program")
        .shown_by("`promised/broadcast_loss` of the tests' recordings"),
    rule("unused_cache", Class::Peak, One(kept::unused_cache))
        .finds("Keys and values that a pass keeps, and nothing generates tokens with")
        .when("no phase of generation; KV cache of a forward pass, gone within the step that made it: ≥ 64 MiB and ≥ 10 % of the peak")
        .source("measured on published recordings")
        .shown_by("generated: a pass that keeps two blocks a layer"),
    rule("last_result", Class::Peak, One(kept::last_result))
        .finds("What a step made last, held by a variable until the next step made its own")
        .when("≥ 2 known steps; at the peak, temporaries or activations made inside the call of the step before (where a call is the step) that are freed only after this step made the same again: ≥ 64 MiB and ≥ 10 % of it; freeing them between the steps lowers the peak by ≥ 1 %; and no graph that nothing uses")
        .source("measured on published recordings")
        .measured("8 of 8 programs")
        .shown_by("generated: a result that is held over"),
    rule("earlier_model", Class::Peak, One(rebuilt::earlier_model))
        .finds("A model that was made again while the one before is held")
        .when("known steps, two or more for each model; the lines and sizes of ≥ 4/5 of a model's weights come again after a step, or the lines alone; no step makes gradients for more than 1.5 times the newest model; weights, gradients and state of those before the last are ≥ 64 MiB and ≥ 10 % of the peak, and freeing them lowers it by ≥ 1 %")
        .source("measured on own recordings")
        .measured("2 of 2 programs")
        .shown_by("`kinds/kept_models.python` of the tests' recordings"),
    rule("earlier_optimizer", Class::Peak, One(rebuilt::earlier_optimizer))
        .finds("State of an optimizer that another one has replaced")
        .when("known steps, no model made again and no LBFGS; state of ≥ 4/5 of the sizes comes again after a step; what is from before the last time, of sizes with more than two states a weight, is ≥ 64 MiB and ≥ 10 % of the peak, and freeing it lowers the peak by ≥ 1 %")
        .source("measured on own recordings")
        .measured("1 of 1 program")
        .shown_by("`promised/old_optimizer` of the tests' recordings"),
    rule("loaded_copy", Class::Peak, One(rebuilt::loaded_copy))
        .finds("A checkpoint on the GPU beside what it was copied into")
        .when("at the peak: blocks of `torch.load` or safetensors, ≥ 64 MiB and ≥ 10 % of it, for ≥ 4/5 of which weights or states of the same sizes were made elsewhere, not by a deep copy, or for one part with one or two more of that size as the states of an optimizer, which takes them over; freeing them before the first pass, or not making them where the peak is before it, lowers the peak by ≥ 1 %")
        .source("measured on own recordings")
        .measured("3 of 3 programs")
        .shown_by("`promised/ckpt_on_gpu` of the tests' recordings"),
    rule(ZERO_BEFORE_STEP, Class::Hygiene, One(optimizer::zero_before_step))
        .finds("An optimizer step that finds no gradients")
        .when("a snapshot with annotations of `Optimizer.step` and call stacks; before each ≥ 1 MiB of gradients were made, ≥ 9/10 of them live when the last is made, and all freed; and no optimizer state and no buckets")
        .source("measured on own recordings")
        .measured("1 of 1 program")
        .shown_by("`promised/zero_before_step` of the tests' recordings"),
    rule("kept_results", Class::Peak, One(results::kept_results))
        .finds("Results of batches that are over")
        .when("known steps; at the peak ≥ 4 tensors of one line and size of its step, between which backward passes began, or ≥ 8 between which all else that was made went again, without training only of lines outside modules; all but the newest are ≥ 64 MiB and ≥ 10 % of the peak, and freeing each when the next is made lowers the peak by ≥ 1 %; and no leak")
        .source("measured on own recordings")
        .measured("3 of 3 programs")
        .shown_by("`promised/accum_outputs` and `val_cat` of the tests' recordings"),
    rule("unread_scores", Class::Peak, One(results::unread_scores))
        .finds("Scores of all positions, and a loss that reads few")
        .when("known steps; a linear layer makes the last tensor before the loss of the peak's step, ≥ 8 times as large as the largest of the loss and ≥ 4 times all of that size; those of its size are ≥ 64 MiB, and with the part that is read the peak is ≥ 10 % lower. Without training: scores of ≥ 10 % of the peak, and either the next 3 passes make ones ≥ 8 times smaller, or nothing that is made of them before the next pass is more than 1/8 as large")
        .source("measured on own recordings")
        .measured("3 of 3 programs")
        .shown_by("`promised/logits_last` of the tests' recordings"),
    rule("backward_graph", Class::Peak, One(backward::backward_graph))
        .finds("A graph of the backward pass that nothing goes through")
        .when("known steps and stacks; what a backward pass makes beside gradients outlives it, and no backward pass of its step frees it; it is ≥ 64 MiB and ≥ 10 % of the peak")
        .source("measured on own recordings")
        .measured("2 of 2 programs")
        .shown_by("`promised/penalty_graph` of the tests' recordings"),
    rule("sample_gradients", Class::Peak, One(backward::sample_gradients))
        .finds("Gradients of every sample, held at once")
        .when("frames of vmap or Opacus; blocks at the peak are more than 16 times as large as weights, by one number that holds for ≥ 4/5 of their bytes; they are ≥ 64 MiB and ≥ 10 % of the peak")
        .source("measured on own recordings")
        .measured("1 of 2 programs")
        .shown_by("`promised/sample_grads_whole` of the tests' recordings"),
    rule("dense_embedding", Class::Peak, One(backward::dense_embedding))
        .finds("A gradient for a whole embedding, of which a batch reads few rows")
        .when("known steps; `nn.Embedding` makes rows for indices that are inputs of the step, ≤ 1/8 of the rows of a weight whose gradient is ≥ 64 MiB and ≥ 10 % of the peak; no other weight is as large, and no scores over its rows are made")
        .source("measured on own recordings")
        .measured("1 of 2 programs")
        .shown_by("`promised/dense_embedding` of the tests' recordings"),
    rule("all_pairs", Class::Peak, One(broadcast::all_pairs))
        .finds("Differences of all pairs, made at once")
        .when("a program that trains; the largest tensor at the peak is as large as [n, n, d], made right after one of [n, d] by a line of the program outside torch.func and hooks, and one of [n, n] follows, n ≥ 64; those of its size are ≥ 64 MiB and ≥ half of the peak")
        .source("measured on own recordings")
        .measured("1 of 1 program")
        .shown_by("`promised/pairwise_expand` of the tests' recordings"),
    rule("larger_evaluation", Class::Peak, One(evaluation::larger_batch))
        .finds("An evaluation whose batch is larger than training's")
        .when("the peak is in an evaluation of a program that trains, and lines with ≥ 2/3 of the bytes make tensors there that are the same number of times, ≥ 1.5, as large as in a training pass; with their size of training the peak is ≥ 10 % lower")
        .source("measured on own recordings")
        .measured("2 of 2 programs")
        .shown_by("`promised/eval_big` of the tests' recordings"),
    rule("kept_copies", Class::Peak, One(rebuilt::kept_copies))
        .finds("Copies of a whole model that one line made in several steps")
        .when("known steps; at the peak weights that one line made in two or more steps, in each ≥ 4/5 of all weights from other lines; what is from before the last time is ≥ 64 MiB and ≥ 10 % of the peak, and freeing it lowers the peak by ≥ 1 %; and no leak")
        .source("measured on own recordings")
        .measured("1 of 1 program")
        .shown_by("`promised/deep_copy_best` of the tests' recordings"),
    rule("waiting_batches", Class::Peak, One(rebuilt::waiting_batches))
        .finds("Batches on the GPU long before their step")
        .when("known steps of training; at the peak ≥ 8 inputs of one size from one line: all but one are ≥ 64 MiB and ≥ 10 % of it")
        .source("measured on own recordings")
        .measured("2 of 2 programs")
        .shown_by("`promised/data_on_gpu` of the tests' recordings"),
    rule(TEMPORARIES, Class::Peak, One(kept::temporaries))
        .finds("Short-lived tensors of one line that make the peak")
        .when("without training and without a failure: temporaries of one line at the peak, freed before the recording ends, the largest not joined of others: ≥ 64 MiB and ≥ 25 % of it; a quarter of them lowers the peak by ≥ 10 %, for half of the peak or more with others as large at other moments, and no other finding is about the largest of them")
        .source("measured on published recordings")
        .measured("7 of 7")
        .shown_by("generated: three temporaries beside a weight"),
    rule(FIRST_STEP, Class::Hygiene, One(optimizer::first_step))
        .finds("A recording that ends with the first step, so that later steps need more")
        .when("training without a failure; all optimizer state was made in the recording and no forward pass comes after it; the highest moment before it, with the state, is ≥ 64 MiB and ≥ 10 % above the peak")
        .source("measured on published recordings")
        .measured("1 of 1 program")
        .shown_by("`plan/gpt.b8.one_step` of the tests' recordings"),
    rule("optimizer_state", Class::Peak, One(optimizer::optimizer_state))
        .finds("What the optimizer keeps, and what a smaller state would save")
        .when("optimizer state ≥ 12.5 % of the peak active and ≥ 64 MiB, not of SparseAdam; and eight-bit state lowers the peak by ≥ 10 %, or it is ≥ 25 % and a request failed or < 10 % of cap or device was left")
        .source("row 14")
        .measured("14 of 14")
        .shown_by("generated: a failure beside Adam's state"),
    rule("gradients_kept", Class::Peak, One(optimizer::gradients_kept))
        .finds("Gradients that stay until the next backward pass")
        .when("steps are known; gradients ≥ 64 MiB at the peak that are older than the forward pass before it, and no optimizer at work there; freeing them behind the optimizer's step lowers it by ≥ 5 %")
        .source("measured on published recordings")
        .measured("13 of 13 programs")
        .shown_by("`warm/adam_inplace.python.pickle`: `set_to_none=False`"),
    rule("activations", Class::Peak, One(peak::activations))
        .finds("Activations kept for the backward pass, and what checkpointing would save")
        .when("activations ≥ 33 % of the peak active and ≥ 64 MiB; and checkpointing lowers the peak by ≥ 20 %, or they are ≥ 50 % and a request failed or < 10 % of cap or device was left, or what checkpointing saves is not known and they are ≥ 60 % (≥ 75 % where no stacks were recorded); without a failure and without stacks only where the source names their role")
        .source("row 21")
        .measured("4 of 4")
        .shown_by("generated: a failure beside activations"),
    rule(BATCH, Class::Peak, One(peak::batch))
        .finds("Activations and temporaries of a training step that no other finding is about")
        .when("the peak is in a forward or backward pass of a program that trains, or without stacks its steps are the optimizer's and half are activations; activations and temporaries are ≥ 60 % of it and ≥ 64 MiB, and no other finding is about the peak, a leak or a failure")
        .source("measured on own recordings")
        .measured("13 of 14 programs")
        .shown_by("`kinds/penalty.python` of the tests' recordings"),
];
