"""GPUs as data: one TOML file per GPU with its datasheet row and its calibration constants."""

from tclint.cost.gpu.calibration import Calibration
from tclint.cost.gpu.factors import Factor
from tclint.cost.gpu.gpu import Gpu
from tclint.cost.gpu.loader import all_gpus, load_gpu

__all__ = ["Calibration", "Factor", "Gpu", "all_gpus", "load_gpu"]
