//! The name and cost of a change, and the code to paste for it.

use serde::Serialize;

use super::Change;

/// Python lines to paste. Lines for several changes follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Code {
    /// For a training loop in plain PyTorch.
    pub pytorch: String,
    /// For Hugging Face's `Trainer`.
    pub hf_trainer: String,
    /// For a `Trainer` of Lightning.
    pub lightning: String,
}

impl Code {
    /// Code for several changes. Changes to the model come first, because the optimizer is made from the model's parameters.
    pub fn of(changes: &[Change]) -> Self {
        let mut all = Code::default();
        let (of_model, others): (Vec<&Change>, Vec<&Change>) =
            changes.iter().partition(|change| matches!(change, Change::Lora(_) | Change::Bf16));
        for change in of_model.into_iter().chain(others) {
            let one = change.code();
            let join = |all: &mut String, one: &str| {
                if !all.is_empty() {
                    all.push('\n');
                }
                all.push_str(one);
            };
            join(&mut all.pytorch, &one[0]);
            join(&mut all.hf_trainer, &one[1]);
            join(&mut all.lightning, &one[2]);
        }
        all
    }
}

impl Code {
    /// Adds an allocator setting before the code.
    #[must_use]
    pub fn with_conf(self, conf: &str) -> Self {
        let line = match conf {
            "" => "unset PYTORCH_CUDA_ALLOC_CONF  # in the shell".to_owned(),
            conf => format!("export PYTORCH_CUDA_ALLOC_CONF={conf}  # in the shell"),
        };
        let join = |lines: String| if lines.is_empty() { line.clone() } else { format!("{line}\n{lines}") };
        Code { pytorch: join(self.pytorch), hf_trainer: join(self.hf_trainer), lightning: join(self.lightning) }
    }

    /// Runs a batch without training in parts of at most `part` samples.
    pub fn of_parts(part: u64) -> Self {
        let lines = format!("results = [model(x) for x in batch.split({part})]");
        Code {
            pytorch: lines.clone(),
            hf_trainer: format!("TrainingArguments(..., per_device_eval_batch_size={part})"),
            lightning: lines,
        }
    }

    /// Runs a batch of `whole` samples in several passes of at most `part` samples, whose gradients add up.
    pub fn of_passes(passes: u64, part: u64, whole: u64) -> Self {
        // A data loader makes equal parts.
        let samples = passes.saturating_mul(part);
        let others = if samples == whole { String::new() } else { format!("  # {samples} samples in place of {whole}") };
        Code {
            pytorch: format!(
                "for part in batch.chunk({passes}):\n    (compute_loss(model, part) * len(part) / len(batch)).backward()\noptimizer.step(); \
                 optimizer.zero_grad()"
            ),
            hf_trainer: format!(
                "TrainingArguments(..., per_device_train_batch_size={part}, gradient_accumulation_steps={passes}){others}"
            ),
            lightning: format!(
                "Trainer(..., accumulate_grad_batches={passes})  # and a data loader with batch_size={part}{}",
                others.replace("  #", ":")
            ),
        }
    }
}

/// The title of changes, with their settings if these differ from the recorded ones.
pub fn titled(title: &str, conf: &str, own: &str) -> String {
    let with = match conf {
        _ if conf == own => return title.to_owned(),
        "" => "default settings",
        "expandable_segments:True" => "expandable segments",
        conf => conf,
    };
    if title.is_empty() { with.to_owned() } else { format!("{title}; {with}") }
}

/// The cost of a change that affects neither results nor time.
pub(crate) const FREE: &str = "nothing";

impl Change {
    /// A title in plain words. `place` is the line around which checkpointing goes.
    pub fn title(&self, place: Option<&str>) -> String {
        match self {
            Change::Checkpoint(name) => match (place, name) {
                (Some(place), _) => format!("checkpoint the module at {place}"),
                (None, Some(name)) => format!("checkpoint {name}"),
                (None, None) => "checkpoint the layers".to_owned(),
            },
            Change::NoForeach => "optimizer with foreach=False".to_owned(),
            Change::Fused => "optimizer with fused=True".to_owned(),
            Change::EightBit => "optimizer state in 8 bits".to_owned(),
            Change::Sgd => "SGD without momentum".to_owned(),
            Change::SetToNone => "free gradients after each step".to_owned(),
            Change::InBackward => "optimizer step inside the backward pass".to_owned(),
            Change::Bf16 => "the whole model in bf16".to_owned(),
            Change::CacheOff => "autocast without its cache".to_owned(),
            Change::Chunks(1) => "logits and loss in 1 chunk".to_owned(),
            Change::Chunks(n) => format!("logits and loss in {n} chunks"),
            Change::Offload => "saved tensors in host memory".to_owned(),
            Change::Del(line) => format!("del of what {line} makes"),
            Change::Lora(rank) => format!("LoRA of rank {rank}"),
            Change::NoGrad => "no graph where no backward pass follows".to_owned(),
            Change::FusedAttention => "fused attention".to_owned(),
            Change::Release => "keep no tensors of earlier steps".to_owned(),
        }
    }

    pub(crate) fn cost(&self) -> &'static str {
        match self {
            Change::Checkpoint(_) => "about a third more time: the layers run forward twice",
            Change::NoForeach => "a slower optimizer step",
            Change::Fused => FREE,
            Change::EightBit => "a package (bitsandbytes), and rounding of the state",
            Change::Sgd => "another optimizer: the learning rate has to be found anew",
            Change::SetToNone => FREE,
            Change::InBackward => "no clipping by the norm of all gradients, and no accumulation",
            Change::Bf16 => {
                "weights, gradients, optimizer state and activations are rounded: small updates of weights may be lost"
            }
            Change::CacheOff => "weights that are used twice are cast twice",
            Change::Chunks(_) => "the last layer runs forward twice",
            Change::Offload => "time for the copies to the host and back",
            Change::Del(_) => FREE,
            Change::Lora(_) => "another training: most weights stay as they are",
            Change::NoGrad => FREE,
            Change::FusedAttention => FREE,
            Change::Release => FREE,
        }
    }

    /// Lines for a training loop in plain PyTorch, for HF Trainer and for Lightning.
    fn code(&self) -> [String; 3] {
        let own = |lines: [&str; 3]| lines.map(str::to_owned);
        match self {
            Change::Checkpoint(_) => own([
                "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # instead of x = block(x)",
                "TrainingArguments(..., gradient_checkpointing=True, gradient_checkpointing_kwargs={\"use_reentrant\": False})",
                "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # in the module's forward",
            ]),
            Change::NoForeach => own([
                "optimizer = torch.optim.AdamW(..., foreach=False)  # your own class and arguments, with foreach=False",
                "Trainer(..., optimizers=(torch.optim.AdamW(..., foreach=False), None))  # with your own arguments",
                "return torch.optim.AdamW(..., foreach=False)  # in configure_optimizers: your own arguments, with foreach=False",
            ]),
            Change::Fused => own([
                "optimizer = torch.optim.AdamW(..., fused=True)  # your own class and arguments, with fused=True",
                "TrainingArguments(..., optim=\"adamw_torch_fused\")",
                "return torch.optim.AdamW(..., fused=True)  # in configure_optimizers: your own arguments, with fused=True",
            ]),
            Change::EightBit => own([
                "optimizer = bitsandbytes.optim.AdamW8bit(...)  # your own arguments; also Adam8bit, SGD8bit, Lion8bit, RMSprop8bit",
                "TrainingArguments(..., optim=\"adamw_bnb_8bit\")",
                "return bitsandbytes.optim.AdamW8bit(...)  # in configure_optimizers: your own arguments; also Adam8bit, SGD8bit, Lion8bit",
            ]),
            Change::Sgd => own([
                "optimizer = torch.optim.SGD(model.parameters(), lr=lr)",
                "TrainingArguments(..., optim=\"sgd\")",
                "return torch.optim.SGD(self.parameters(), lr=lr)  # in configure_optimizers",
            ]),
            Change::SetToNone => own([
                "optimizer.step(); optimizer.zero_grad(set_to_none=True)",
                "# Trainer does this already",
                "# Lightning does this already; with manual optimization: optimizer.zero_grad(set_to_none=True) behind optimizer.step()",
            ]),
            Change::InBackward => own([
                "optimizers = {p: torch.optim.AdamW([p], lr=lr, foreach=False) for p in model.parameters()}  # your own class and arguments\n\
                 def step(p): optimizers[p].step(); optimizers[p].zero_grad()\n\
                 for p in model.parameters(): p.register_post_accumulate_grad_hook(step)",
                "# Trainer steps behind the backward pass; its layer-wise optimizers (optim=\"galore_adamw_layerwise\") step inside",
                "# with self.automatic_optimization = False: the hooks of the plain loop, and no optimizer.step()",
            ]),
            Change::Bf16 => own([
                "model = model.to(torch.bfloat16)  # and no autocast",
                "model = AutoModel.from_pretrained(name, dtype=torch.bfloat16)",
                "Trainer(..., precision=\"bf16-true\")",
            ]),
            Change::CacheOff => own([
                "with torch.autocast(\"cuda\", torch.bfloat16, cache_enabled=False):",
                "# Trainer sets autocast up itself: call the model under torch.autocast(..., cache_enabled=False) in compute_loss",
                "# in training_step: with torch.autocast(\"cuda\", torch.bfloat16, cache_enabled=False):",
            ]),
            Change::Chunks(n) => {
                let lines = format!(
                    "hidden = body(inputs)  # the model without its last layer, head\n\
                     def part(h, y): return F.cross_entropy(head(h).float(), y, reduction=\"sum\")\n\
                     h, y = hidden[:, :-1].flatten(0, 1), labels[:, 1:].flatten()  # without the shift where labels are shifted already\n\
                     loss = sum(torch.utils.checkpoint.checkpoint(part, a, b, use_reentrant=False) for a, b in zip(h.chunk({n}), y.chunk({n}))) \
                     / (y != -100).sum()"
                );
                [
                    lines.clone(),
                    format!("# in compute_loss of a Trainer of your own:\n{lines}"),
                    format!("# in training_step:\n{lines}"),
                ]
            }
            Change::Offload => own([
                "with torch.autograd.graph.save_on_cpu(pin_memory=True): loss = compute_loss(model, batch)",
                "# in compute_loss: with torch.autograd.graph.save_on_cpu(pin_memory=True): return super().compute_loss(...)",
                "# in training_step: with torch.autograd.graph.save_on_cpu(pin_memory=True): loss = self.loss(batch)",
            ]),
            Change::Del(line) => {
                let lines = format!("del name  # what {line} makes, behind its last use");
                [lines.clone(), lines.clone(), lines]
            }
            Change::NoGrad => own([
                "with torch.no_grad(): outputs = model(batch)  # evaluation and generation",
                "# Trainer evaluates without a graph; around calls of your own: with torch.no_grad():",
                "# Lightning's validation_step has no graph; around calls of your own: with torch.no_grad():",
            ]),
            Change::FusedAttention => own([
                "out = F.scaled_dot_product_attention(q, k, v)  # instead of softmax(q @ k.mT / sqrt(d)) @ v; with a causal mask: is_causal=True",
                "model = AutoModel.from_pretrained(name, attn_implementation=\"sdpa\")",
                "out = F.scaled_dot_product_attention(q, k, v)  # in the module's forward; with a causal mask: is_causal=True",
            ]),
            Change::Release => own([
                "total += loss.item(); outputs.append(out.detach().cpu())  # numbers, or copies on the host",
                "# in compute_loss and callbacks: keep loss.item(), not loss",
                "# in training_step: self.log(...) keeps a number; append out.detach().cpu()",
            ]),
            Change::Lora(rank) => {
                let lines =
                    format!("model = peft.get_peft_model(model, peft.LoraConfig(r={rank}, target_modules=\"all-linear\"))");
                [lines.clone(), lines.clone(), lines]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimizer_is_made_of_the_parameters_of_the_changed_model() {
        let lines = Code::of(&[Change::EightBit, Change::Lora(16)]).pytorch;
        assert!(lines.find("get_peft_model") < lines.find("AdamW8bit"), "{lines}");
    }

    #[test]
    fn passes_keep_the_batch_or_say_that_they_do_not() {
        assert!(!Code::of_passes(4, 16, 64).hf_trainer.contains('#'));
        let uneven = Code::of_passes(6, 11, 64);
        assert!(uneven.hf_trainer.ends_with("# 66 samples in place of 64"), "{}", uneven.hf_trainer);
        assert!(uneven.pytorch.contains("len(part) / len(batch)"), "{}", uneven.pytorch);
    }
}
