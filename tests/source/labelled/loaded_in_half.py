"""A checkpoint loaded in float16 and trained as it is: the scaler cannot unscale float16 gradients."""

import torch
from transformers import AutoModelForCausalLM


def finetune(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16).to("cuda")  # AMP009: flag
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    scaler = torch.amp.GradScaler("cuda")
    model.train()
    for batch in batches:
        with torch.autocast("cuda"):
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def finetune_in_single(name, batches, half):
    dtype = torch.float16 if half else torch.float32
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=dtype)  # AMP009: quiet
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    scaler = torch.amp.GradScaler("cuda")
    for batch in batches:
        with torch.autocast("cuda"):
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def finetune_after_a_cast(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16).float()  # AMP009: quiet
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    scaler = torch.amp.GradScaler("cuda")
    for batch in batches:
        with torch.autocast("cuda"):
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
