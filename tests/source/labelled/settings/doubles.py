import torch
from torch import nn

classifier = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
classifier = classifier.double().cuda()  # PRC007: flag
total = torch.zeros(1)
for x, y in loader:
    loss = nn.functional.cross_entropy(classifier(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    total += loss.detach().cpu().double()  # PRC007: quiet
