import timm
import torch

model = timm.create_model("resnet50").cuda()
model = model.to(memory_format=torch.channels_last)  # FMT002: quiet
for images, labels in train_loader:
    images = images.to("cuda", non_blocking=True)  # FMT003: flag
    labels = labels.to("cuda", non_blocking=True)  # FMT003: quiet
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
