"""A policy loaded in float16 goes to AdamW and no loss is scaled; its frozen reference may stay float16."""

import torch
from transformers import AutoModelForCausalLM


def align(name, batches, preference_loss):
    policy = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.half).cuda()  # AMP002: flag
    reference = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.half).cuda()  # AMP002: quiet
    reference.eval()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    for batch in batches:
        with torch.no_grad():
            expected = reference(**batch).logits
        loss = preference_loss(policy(**batch).logits, expected)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
