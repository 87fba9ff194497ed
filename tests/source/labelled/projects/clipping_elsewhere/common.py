import math

import torch
from torch import nn
