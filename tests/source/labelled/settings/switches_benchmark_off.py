import torch


class Runner:
    def setup(self):
        torch.backends.cudnn.benchmark = False  # RUN002: flag
        torch.set_float32_matmul_precision("highest")  # PRC002: flag
