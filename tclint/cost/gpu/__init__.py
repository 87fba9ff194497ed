"""GPUs as data: datasheet rows and constants, a TOML file per GPU, and one for those without measurements."""

from tclint.cost.gpu.calibration import Calibration
from tclint.cost.gpu.factors import Factor
from tclint.cost.gpu.gpu import Gpu
from tclint.cost.gpu.loader import all_gpus, load_gpu

__all__ = ["Calibration", "Factor", "Gpu", "all_gpus", "load_gpu"]
