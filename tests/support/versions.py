"""What older versions of torch cannot do at all."""

from __future__ import annotations

import pytest
import torch

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
since_2_5 = pytest.mark.skipif(VERSION < (2, 5), reason="torch 2.4 refuses this, or makes nothing of it")
