"""Models in 16 bits as a whole, without a scaler."""

import torch


def train(loader, criterion):
    model = build().cuda().half()  # AMP002: flag
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        loss = criterion(model(images.half()), labels)
        loss.backward()
        optimizer.step()


def train_if(loader, args):
    net = build().to(args.device)
    if args.fp16:
        net = net.half()  # AMP002: flag
    optimizer = torch.optim.AdamW(net.parameters(), eps=1e-4)
    for batch in loader:
        net(batch).mean().backward()
        optimizer.step()


def train_then_export(loader):
    model = build().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
    model.half()  # AMP002: quiet
    torch.save(model.state_dict(), "half.pt")


def distill(loader):
    teacher = build().cuda().half()  # AMP002: quiet
    teacher.eval()
    student = build().cuda()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for batch in loader:
        with torch.no_grad():
            target = teacher(batch.half())
        (student(batch) - target.float()).square().mean().backward()
        optimizer.step()


def bf16(loader):
    model = build().cuda().bfloat16()  # AMP002: quiet
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()


def back_again(loader):
    model = build().half().float()  # AMP002: quiet
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()


def infer(images):
    model = build().cuda().half()  # AMP002: quiet
    model.eval()
    with torch.no_grad():
        return model(images.half())


def cast_and_train(model, loader, optimizer, half):
    if half:
        model.half()  # AMP002: flag
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()


def keep(model, path):
    model.half()  # AMP002: quiet
    torch.save(model.state_dict(), path)


def whole_run(loader, path):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        cast_and_train(model, loader, optimizer, half=True)
    keep(model, path)
