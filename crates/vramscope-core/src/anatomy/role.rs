//! [`Role`]: what a block is for.

/// What a block is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Role {
    /// Weights and buffers of the model.
    #[serde(alias = "Parameters")]
    Weights,
    /// Gradients of weights: made in the backward pass, alive after it.
    Gradients,
    /// State that the optimizer keeps between steps.
    OptimizerState,
    /// Blocks of the forward pass that are kept for the backward pass.
    Activations,
    /// Copies of weights in a smaller type, which autocast keeps until its context ends.
    AutocastCopies,
    /// Inputs of a step: batches, masks, noise.
    Inputs,
    /// Made and freed within a pass.
    Temporaries,
    /// Scratch memory of cuBLAS, cuDNN and other libraries.
    Workspaces,
    /// Buffers of collectives: DDP's buckets, FSDP's gathered weights.
    #[serde(alias = "Communication")]
    Buckets,
    /// Key-value caches of inference.
    KvCache,
    /// Neither the stack nor the lifetime shows what it is for.
    #[default]
    #[serde(alias = "Other")]
    Unknown,
}

impl Role {
    /// Every role, in the order of legends and tables.
    pub const ALL: [Role; 11] = [
        Role::Weights,
        Role::Gradients,
        Role::OptimizerState,
        Role::Activations,
        Role::AutocastCopies,
        Role::Inputs,
        Role::Temporaries,
        Role::Workspaces,
        Role::Buckets,
        Role::KvCache,
        Role::Unknown,
    ];

    /// Its index in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        self as usize
    }

    /// [`text`](Self::text), with "probably" in front if the role is inferred: `probably weights`.
    pub fn words(self, is_probable: bool) -> String {
        format!("{}{}", if is_probable { "probably " } else { "" }, self.text())
    }

    /// Its name inside a sentence and in a legend.
    pub fn text(self) -> &'static str {
        match self {
            Role::Weights => "weights",
            Role::Gradients => "gradients",
            Role::OptimizerState => "optimizer state",
            Role::Activations => "activations",
            Role::AutocastCopies => "autocast copies",
            Role::Inputs => "inputs",
            Role::Temporaries => "temporaries",
            Role::Workspaces => "workspaces",
            Role::Buckets => "buckets",
            Role::KvCache => "KV cache",
            Role::Unknown => "unknown",
        }
    }

    /// Its stable name in JSON, queries (`role=optimizer_state`) and settings.
    pub fn name(self) -> &'static str {
        match self {
            Role::OptimizerState => "optimizer_state",
            Role::AutocastCopies => "autocast_copies",
            Role::KvCache => "kv_cache",
            other => other.text(),
        }
    }

    /// The role with this stable name, or with a name from an older version.
    pub fn from_name(name: &str) -> Option<Self> {
        let older = match name {
            "parameters" => Some(Role::Weights),
            "communication" => Some(Role::Buckets),
            "other" => Some(Role::Unknown),
            _ => None,
        };
        older.or_else(|| Role::ALL.into_iter().find(|r| r.name() == name || r.text() == name))
    }

    /// One sentence, shown on hover.
    pub fn about(self) -> &'static str {
        match self {
            Role::Weights => "Weights and buffers of the model.",
            Role::Gradients => "Gradients of weights: made in the backward pass, alive until zero_grad.",
            Role::OptimizerState => "What the optimizer keeps between steps, such as Adam's two moments.",
            Role::Activations => "What the forward pass keeps for the backward pass.",
            Role::AutocastCopies => "Copies of weights in a smaller type. Autocast keeps them until its context ends.",
            Role::Inputs => "What a step is given: batches, masks, noise.",
            Role::Temporaries => "Made and gone within a pass.",
            Role::Workspaces => "Scratch memory of cuBLAS, cuDNN and other libraries.",
            Role::Buckets => "Buffers of collectives: DDP's buckets, FSDP's gathered weights.",
            Role::KvCache => "Key-value caches of inference.",
            Role::Unknown => "The recording does not show it. Your own rules can name it.",
        }
    }
}

/// Why a block has its role. One byte per block; the sentence is built on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Because {
    /// Neither the stack nor the lifetime shows a role.
    #[default]
    Nothing,
    /// Made where a model is built or loaded, and kept.
    Loaded,
    /// Like [`Loaded`](Self::Loaded), by weaker evidence: a constructor in the user's code.
    Built,
    /// Kept throughout, but no gradient has its size, although all weights have gradients.
    HasNoGradient,
    /// `Module._apply` moved it on its line for gradients, after the weight of the same size.
    MovedWithWeight,
    /// As large as a weight, and made by the constructor of an optimizer.
    BuiltByOptimizer,
    /// It replaced a block of the same size that had this role.
    TakesItsPlace,
    /// Made together with one block of every weight's size, and kept beyond its step.
    CopiedWithAll,
    /// Freed before the program went on from loading.
    GoneAfterLoading,
    /// Older than the history, and never freed.
    OlderAndStays,
    /// Older than the history and never freed; no gradient has its size, but every forward pass makes a block of it.
    OlderResult,
    /// Older than the history; the number of blocks of its size equals that of weights, gradients and state together.
    OlderByCount,
    /// Older than the history, freed by `zero_grad`.
    OlderFreedByZeroGrad,
    /// Older than the history, and the optimizer replaced it.
    OlderReplaced,
    /// Older than the history, freed by code that loads weights.
    OlderFreedByLoading,
    /// Older than the history, freed in the backward pass.
    OlderFreedInBackward,
    /// Older than the history, left from the iteration before.
    OlderLeftover,
    /// Older than the history, and without the stack that the weights of its size have.
    OlderWithoutStack,
    /// Made in backward and still held after it.
    OutlivesBackward,
    /// Megatron's buffer of all gradients.
    GradientBuffer,
    /// Made and freed in backward.
    DiesInBackward,
    /// Made by forward code that ran again in backward.
    Recomputed,
    /// Made by the optimizer and kept.
    OutlivesOptimizer,
    /// Made and freed in the optimizer.
    DiesInOptimizer,
    /// As large as a weight, made after backward by code that is not a PyTorch optimizer, and kept.
    StepsByHand,
    /// Made by the program's own code beside the model, with as many blocks as gradients of its size.
    TwinsOfGradients,
    /// Made before the first pass and twice as large as a gradient: an fp32 copy of a half-precision weight.
    TwiceAsLarge,
    /// Made between the backward pass and the optimizer, one for each fp32 copy of a weight.
    CopiedForOptimizer,
    /// Made in forward and still held when backward begins.
    LivesToBackward,
    /// Made in forward and still held when a request failed there; the program trains.
    LivesToFailure,
    /// Made in forward and kept by a graph that no backward pass uses.
    KeptByGraph,
    /// Made in forward, and kept beyond the next forward pass.
    KeptBeyond,
    /// Made right after a forward pass, before the inputs of the next one, and kept beyond that one.
    KeptResult,
    /// Made and freed in forward.
    DiesInForward,
    /// Half as large as a weight, made just before the result of the operator that uses it, and kept to the end of forward.
    HalfOfWeight,
    /// A frame belongs to a library that keeps scratch memory.
    LibraryFrame,
    /// As large as a library's workspace, made once and kept.
    LibrarySize,
    /// Freed at once, and the same call then emptied the cache.
    Trial,
    /// A frame belongs to a collective.
    CollectiveFrame,
    /// A frame belongs to a key-value cache.
    CacheFrame,
    /// Made in a function of the user that is named after a cache; each block replaces a smaller one that was copied into it.
    GrowsByCopy,
    /// Kept in pairs: a pass without a backward pass keeps two blocks of one size per layer, made close together, and little else.
    KeptInPairs,
    /// Copied into such a growing block, and freed right after.
    CopiedIntoCache,
    /// Made between the passes of an evaluation; it replaces a smaller block that was copied into it.
    Joined,
    /// A frame belongs to the tuning of kernels.
    TuningFrame,
    /// Made between the passes and still held in the next one.
    LivesIntoForward,
    /// Made and freed between the passes.
    DiesBetween,
    /// Made by the program's own code before the first pass, as large as a gradient, never freed.
    AsLargeAsGradient,
    /// As large as state that an optimizer step made; it existed before that step and through the next one.
    HasState,
    /// Without stacks: by size and lifetime relative to repeating steps.
    ByRhythm,
    /// Without stacks and steps: made before anything was freed and before a library's workspace.
    MadeFirst,
    /// Without stacks and steps: held together with many other blocks, after the model was loaded.
    HeldWithMany,
}

impl Because {
    /// True if the role is inferred only from sizes, counts or lifetimes.
    pub(crate) fn is_probable(self) -> bool {
        use Because as B;
        matches!(
            self,
            B::Built
                | B::HasNoGradient
                | B::MovedWithWeight
                | B::BuiltByOptimizer
                | B::TakesItsPlace
                | B::CopiedWithAll
                | B::OlderAndStays
                | B::OlderResult
                | B::OlderByCount
                | B::OlderFreedByZeroGrad
                | B::OlderReplaced
                | B::OlderFreedByLoading
                | B::OlderFreedInBackward
                | B::OlderLeftover
                | B::OlderWithoutStack
                | B::StepsByHand
                | B::TwinsOfGradients
                | B::TwiceAsLarge
                | B::CopiedForOptimizer
                | B::LivesToFailure
                | B::KeptByGraph
                | B::HalfOfWeight
                | B::LibrarySize
                | B::Trial
                | B::LivesIntoForward
                | B::KeptResult
                | B::AsLargeAsGradient
                | B::GrowsByCopy
                | B::KeptInPairs
                | B::CopiedIntoCache
                | B::Joined
                | B::HasState
                | B::ByRhythm
                | B::MadeFirst
                | B::HeldWithMany
        )
    }

    /// The reason as a sentence without its subject, which is the block.
    pub(crate) fn sentence(self) -> &'static str {
        use Because as B;
        match self {
            B::Nothing => "Nothing in its stack or its life tells what it is for.",
            B::Loaded => "It was made where a model is built, moved or loaded, and kept.",
            B::Built => "It was made by a constructor or loader of yours, and kept.",
            B::HasNoGradient => {
                "It is kept all along. Weights have a gradient each; it has none and is larger than all of them, so it is data."
            }
            B::MovedWithWeight => {
                "It was moved with the model, right after a weight of its size: that is how a gradient is moved."
            }
            B::BuiltByOptimizer => "It is as large as a weight, and the constructor of an optimizer made and kept it.",
            B::TakesItsPlace => "It took the place of a block of its size that had this role, and was kept.",
            B::CopiedWithAll => {
                "It was made with others, one of every weight's size, and was kept beyond the step: a copy of the weights."
            }
            B::GoneAfterLoading => "It was made while the model was loaded, and was gone before the first pass.",
            B::OlderAndStays => "It is older than the history, and no pass freed it.",
            B::OlderResult => {
                "It is older than the history and was never freed. No gradient is as large, and the forward pass makes one of its size: a variable may hold its result."
            }
            B::OlderByCount => {
                "It is older than the history. Its size occurs once for the weight, and again for what the optimizer keeps for it."
            }
            B::OlderFreedByZeroGrad => {
                "It is older than the history, is as large as a weight, and was freed before the next backward pass."
            }
            B::OlderReplaced => "It is older than the history, and the optimizer replaced it by a block of the same size.",
            B::OlderFreedByLoading => "It is older than the history, and code that loads weights freed it.",
            B::OlderFreedInBackward => "It is older than the history, and the backward pass freed it.",
            B::OlderWithoutStack => {
                "It is older than the history. The weight of its size has a call stack, and it has none, like what a backward pass makes."
            }
            B::OlderLeftover => "It is older than the history: left from the iteration before.",
            B::OutlivesBackward => "It was made in the backward pass and lived past it.",
            B::GradientBuffer => "Megatron made it to hold the gradients of all weights.",
            B::DiesInBackward => "It was made in the backward pass and was gone when that ended.",
            B::Recomputed => "The backward pass computed it again: its layer is checkpointed.",
            B::OutlivesOptimizer => "The optimizer made it and kept it after its step.",
            B::DiesInOptimizer => "It was made in the optimizer's step and was gone when that ended.",
            B::StepsByHand => "It is as large as a weight, was made right after a backward pass, and was kept.",
            B::TwinsOfGradients => {
                "Code of yours made it beside the model, with the same number of blocks for every gradient, of its size: an optimizer's state is built like this."
            }
            B::TwiceAsLarge => {
                "One line made a block twice as large as each gradient before the first pass: fp32 copies of half-precision weights, which the optimizer steps."
            }
            B::CopiedForOptimizer => {
                "It was made between the backward pass and the optimizer's step, one for each fp32 copy of a weight: its gradient in fp32."
            }
            B::LivesToBackward => "It was made in the forward pass and was still held when the backward pass began.",
            B::LivesToFailure => {
                "It was made in a forward pass and was still held when a request failed there, before the backward pass."
            }
            B::KeptByGraph => "The forward pass kept it, with what the other layers made, and no backward pass used it.",
            B::KeptBeyond => "It was made in a forward pass and was still held when the next one ended.",
            B::KeptResult => {
                "It was made right behind a forward pass and outlived the inputs of the next: a result that is kept."
            }
            B::DiesInForward => "It was made in the forward pass and was gone soon after.",
            B::HalfOfWeight => {
                "It is half as large as a weight, was made beside the result that it was used for, and lived to the end of the forward pass."
            }
            B::LibraryFrame => "A library made it for its own use.",
            B::LibrarySize => "It is as large as a cuBLAS workspace, was made once, and was kept.",
            B::Trial => {
                "It was freed at once, and the same call emptied the cache after it. This is how cuDNN tries algorithms when torch.backends.cudnn.benchmark is on."
            }
            B::CollectiveFrame => "A collective made it.",
            B::CacheFrame => "Code of a key-value cache made it.",
            B::GrowsByCopy => {
                "It took the place of a smaller block that was copied into it, in a function named after a cache or beside another that grows alike."
            }
            B::KeptInPairs => {
                "Each layer kept two blocks of this size to the end of the pass, and hardly anything else was kept: keys and values."
            }
            B::CopiedIntoCache => "It was copied into a larger block of a cache, and freed right after.",
            B::Joined => "It took the place of a smaller block that was copied into it, as torch.cat does.",
            B::TuningFrame => "It was made while kernels were tuned.",
            B::LivesIntoForward => "It was made before a forward pass, by no module, and was held in it.",
            B::DiesBetween => "It was made and gone within a short time, outside of the passes.",
            B::AsLargeAsGradient => "It was made before the first pass, is as large as a gradient, and was never freed.",
            B::HeldWithMany => {
                "The recording has no stacks. Many blocks are held together after the model was loaded, as a forward pass keeps them."
            }
            B::MadeFirst => {
                "It was made before anything was freed and before a library made its workspace, as a model is when it is loaded."
            }
            B::HasState => {
                "It is as large as state that the optimizer made in a step, and was there before that step and after the next."
            }
            B::ByRhythm => "The recording has no stacks: its size and its life beside the steps tell.",
        }
    }
}
