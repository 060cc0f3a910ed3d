import os
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
base = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, vocab_size=4096, use_cache=False)).to(device)
model = get_peft_model(base, LoraConfig(r=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], task_type="CAUSAL_LM"))
T.model(model)
trainable = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=2e-4)
T.opt(optimizer)
gradient_log = []
for step in range(11):
    T.step(step)
    ids = torch.randint(0, 4096, (4, 128)).to(device)
    T.label("inputs", ids)
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    if LEAK:
        gradient_log.append([p.grad.clone() for p in trainable])  # LEAK
    else:
        gradient_log.append([p.grad.norm().item() for p in trainable])
    optimizer.step()
    T.at("step_end", step)
T.finish()
