import torch
from torch import nn

video = nn.Sequential(nn.Conv3d(3, 64, 3), nn.ReLU())
video = video.to(memory_format=torch.channels_last)  # FMT005: flag
clip = torch.zeros(2, 3, 8, 64, 64).to(memory_format=torch.channels_last)  # FMT005: flag
audio = nn.Conv1d(1, 64, 9).to(memory_format=torch.channels_last)  # FMT005: flag
picture = torch.zeros(2, 3, 64, 64).to(memory_format=torch.channels_last)  # FMT005: quiet
volume = torch.zeros(2, 3, 8, 64, 64).to(memory_format=torch.channels_last_3d)  # FMT005: quiet
unknown = torch.zeros(sizes).to(memory_format=torch.channels_last)  # FMT005: quiet
digit = torch.zeros(64, 1, 28, 28).contiguous(memory_format=torch.channels_last)  # FMT007: flag
photo = torch.zeros(64, 3, 28, 28).contiguous(memory_format=torch.channels_last)  # FMT007: quiet
