import torch
from transformers import LlamaConfig, LlamaForCausalLM
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = LlamaForCausalLM(LlamaConfig(hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=6, vocab_size=8192)).to(device).eval()
T.model(model)
T.at("loaded")
perplexity = []
for i in range(2):
    if i == 1:
        T.mid()
    T.step(i)
    T.phase("forward", i)
    ids = torch.randint(0, 8192, (4, 320)).to(device)
    out = model(ids, labels=ids, use_cache=False)
    T.at("forward_end", i, inputs=ids, outputs=out)
    T.phase("between", i)
    perplexity.append(out.loss.exp().item())
T.finish()
