import os
import torch
import torch.nn as nn
from transformers import BertConfig, BertModel
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(BertConfig(hidden_size=192, num_hidden_layers=3, num_attention_heads=4, intermediate_size=768, vocab_size=4096))
        self.cache = {}

    def forward(self, ids, key):
        if key not in self.cache:
            h = self.bert(ids).last_hidden_state
            if not LEAK:
                self.cache.clear()
            self.cache[key] = h  # LEAK
        return self.cache[key].mean(1)


model = Encoder().to(device).eval()
T.model(model)
with torch.no_grad():
    for step in range(12):
        T.step(step)
        ids = torch.randint(0, 4096, (8, 128)).to(device)
        T.label("inputs", ids)
        v = model(ids, f"batch-{step}")
        v.cpu()
        T.at("step_end", step)
T.finish()
