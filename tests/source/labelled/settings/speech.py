import torch
import torchaudio
from torch import nn

mel = torchaudio.transforms.MelSpectrogram()
net = nn.Sequential(nn.Conv2d(1, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3)).cuda()
img_size = 80
for waveform, lengths in loader:
    loss = net(mel(waveform).cuda()).mean()
    loss.backward()  # RUN001: quiet
    optimizer.step()
