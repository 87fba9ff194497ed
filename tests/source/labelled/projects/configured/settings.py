"""Constants of the project."""

DEVICE = "cuda"
PER_STEP = 20
ROUNDS = 30


class Choices:
    backbone = "tf_efficientnet_b4_ns"
    classes = 3
