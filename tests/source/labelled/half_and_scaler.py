"""Models in 16 bits next to autocast and scalers."""

import torch


def raises(loader):
    model = build().cuda().half()  # AMP009: flag
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()


def exported_half(loader):
    net = build().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            loss = net(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    net.half()  # AMP009: quiet
    torch.save(net.state_dict(), "half.pt")


def frozen_encoder(loader):
    encoder = build().cuda().half()  # AMP009: quiet
    encoder.eval()
    head = build().cuda()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            loss = head(encoder(batch))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def weights_in_bf16(loader):
    decoder = build().to("cuda", torch.bfloat16)  # AMP009: flag
    optimizer = torch.optim.AdamW(decoder.parameters())
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = decoder(batch)
        loss.backward()
        optimizer.step()


def half_inputs(loader):
    classifier = build().cuda()
    optimizer = torch.optim.AdamW(classifier.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for images in loader:
        with torch.autocast("cuda"):
            loss = classifier(images.float())  # AMP009: quiet
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def evaluate(loader):
    critic = build().cuda().half()  # AMP009: quiet
    with torch.no_grad(), torch.autocast("cuda"):
        return [critic(images.half()) for images in loader]
