"""As MoCo and its descendants: a seed asks for determinism, the worker for speed."""

import torch
import torch.backends.cudnn as cudnn


def main(args):
    if args.seed is not None:
        torch.manual_seed(args.seed)
        cudnn.deterministic = True
    main_worker(args)


def main_worker(args):
    cudnn.benchmark = True  # RUN003: flag
    train(args)
