import os
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, vocab_size=4096)).to(device, torch.bfloat16).eval()
T.model(model)
sessions = {}


@torch.inference_mode()
def serve(session, prompt, tokens):
    cache = sessions.setdefault(session, DynamicCache())  # LEAK
    ids = prompt
    for _ in range(tokens):
        logits = model(ids, past_key_values=cache, use_cache=True).logits[:, -1]
        ids = logits.argmax(-1, keepdim=True)
    T.label("kv_cache", cache)
    return ids


for request in range(10):
    T.step(request)
    prompt = torch.randint(0, 4096, (2, 64)).to(device)
    T.label("inputs", prompt)
    answer = serve(f"user-{request}", prompt, 6).cpu()
    if not LEAK:
        del sessions[f"user-{request}"]
    T.at("step_end", request)
T.finish()
