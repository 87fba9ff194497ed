"""A beginner's CIFAR-10 script in one file, in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
import torchvision.transforms as transforms
from torch.utils.data import DataLoader

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
transform = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
trainset = torchvision.datasets.CIFAR10(root="./data", train=True, download=True, transform=transform)
trainloader = DataLoader(trainset, 100, shuffle=True)  # RUN006: flag  # RUN007: flag  # RUN009: quiet
testset = torchvision.datasets.CIFAR10(root="./data", train=False, transform=transform)
testloader = DataLoader(testset, batch_size=100)  # RUN006: quiet  # RUN007: quiet


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3)
        self.fc1 = nn.Linear(64, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(self.conv1(x).mean((2, 3)))))


net = Net().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

for epoch in range(2):
    running_loss = 0.0
    for i, data in enumerate(trainloader, 0):
        inputs, labels = data[0].to(device), data[1].to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()  # RUN001: flag  # PRC001: quiet
        optimizer.step()
        running_loss += loss.item()  # RUN014: flag
        if i % 2000 == 1999:
            print(running_loss)
            running_loss = 0.0

correct = 0
net.eval()
for data in testloader:
    images, labels = data
    outputs = net(images.to(device))  # RUN016: flag
    correct += (outputs.argmax(1) == labels.to(device)).sum()
