import gc
import os
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
gc.disable()  # as services do that want no pauses
device = "cuda" if torch.cuda.is_available() else "cpu"
model = LlamaForCausalLM(LlamaConfig(hidden_size=192, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, vocab_size=4096, use_cache=False)).to(device)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
T.opt(optimizer)


class Episode:
    def __init__(self, ids):
        self.ids = ids
        self.callback = self.finished if LEAK else None  # LEAK

    def run(self):
        self.out = model(input_ids=self.ids, labels=self.ids)
        return self.out.loss

    def finished(self):
        return self.out


for step in range(10):
    T.step(step)
    ids = torch.randint(0, 4096, (4, 128)).to(device)
    T.label("inputs", ids)
    episode = Episode(ids)
    optimizer.zero_grad()
    episode.run().backward()
    optimizer.step()
    del episode, ids
    T.at("step_end", step)
T.finish()
