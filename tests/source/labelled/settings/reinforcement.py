import gymnasium
import torch
from torch import nn

policy = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512)).to("cuda")
environment = gymnasium.make("CartPole-v1")
for episode in range(1000):
    loss = -(policy(state) * returns).mean()
    optimizer.zero_grad()
    loss.backward()  # PRC001: quiet  # RUN001: quiet
    optimizer.step()
