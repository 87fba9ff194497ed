"""Where the plain backward belongs to the run without mixed precision."""

import torch


def by_same_test(model, batch, optimizer, args, mixed):
    with torch.autocast("cuda", enabled=args.fp16):
        loss = model(batch)
    if args.fp16:
        mixed.backward_step(loss)
    else:
        loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def by_other_test(model, batch, optimizer, helper):
    with torch.autocast("cuda"):
        loss = model(batch)
    if helper is not None:
        helper(loss, optimizer)
    else:
        loss.backward()  # AMP001: quiet  AMP006: quiet
        optimizer.step()


def by_early_exit(model, batch, optimizer, amp, mixed):
    if amp:
        with torch.autocast("cuda"):
            loss = model(batch)
        mixed.backward_step(loss)
        return
    loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def both_ways(model, batch, optimizer, amp):
    if amp:
        with torch.autocast("cuda"):
            loss = model(batch)
    else:
        loss = model(batch)
    loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()


def inside_by_test(model, batch, optimizer, amp):
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
        loss = model(batch)
        if not amp:
            loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def inside_try(model, batch, optimizer):
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
            if loss.isnan():
                return
            loss.backward()  # AMP001: quiet  AMP006: flag
    except RuntimeError:
        optimizer.zero_grad()
    else:
        optimizer.step()


def switched_off_inside(model, batch, optimizer):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
        with torch.autocast("cuda", enabled=False):
            loss.float().backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def loss_in_full_precision(model, batch, optimizer, criterion):
    with torch.autocast("cuda"):
        outputs = model(batch)
    with torch.autocast("cuda", enabled=False):
        losses = criterion(outputs.float(), batch)
    total = sum(losses.values())
    total.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()


def one_line(model, batch, optimizer):
    # fmt: off
    with torch.autocast("cuda"): loss = model(batch); loss.backward()  # noqa: E701, E702 # AMP001: flag AMP006: flag
    # fmt: on
    optimizer.step()


def attention(q, k, v, optimizer):
    with torch.autocast("cuda"):
        loss = torch.nn.functional.scaled_dot_product_attention(q, k, v).square().mean()
    loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()


def other_network_in_full_precision(model, head, batch, optimizer):
    with torch.autocast("cuda"), torch.no_grad():
        features = model(batch)
    loss = head(features).mean()
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def leaves_early(model, batch, optimizer, amp, mixed):
    loss = model(batch)
    if amp:
        with torch.autocast("cuda"):
            loss = model(batch)
        mixed.backward_step(loss)
        return
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()
