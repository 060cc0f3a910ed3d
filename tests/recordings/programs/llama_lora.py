import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
base = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, vocab_size=16384)).to(torch.bfloat16).to(device)
model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=["q_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM"))
model.print_trainable_parameters()
T.model(model)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
T.opt(optimizer)
T.at("loaded")
model.train()
for step in range(5):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    batch = torch.randint(0, 16384, (4, 256)).to(device)
    T.phase("forward", step)
    out = model(input_ids=batch, labels=batch)
    T.at("forward_end", step, inputs=batch, outputs=out)
    T.phase("backward", step)
    out.loss.backward()
    T.at("backward_end", step, inputs=batch, outputs=out)
    T.phase("optimizer", step)
    optimizer.step()
    T.at("optimizer_end", step, inputs=batch, outputs=out)
    T.phase("zero_grad", step)
    optimizer.zero_grad()
    T.at("zero_grad_end", step, inputs=batch, outputs=out)
T.finish()
