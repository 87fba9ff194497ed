"""Only adapters of the float16 checkpoint are trained, and those stay float32."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


def finetune(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16)  # AMP009: quiet
    model = get_peft_model(model, LoraConfig(r=8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for batch in batches:
        with torch.autocast("cuda"):
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
