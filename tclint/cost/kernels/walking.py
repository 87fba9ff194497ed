"""The time of SMs whose threads find their elements one by one, in strided tensors or another layout."""

from __future__ import annotations

from typing import TypeVar

from tclint.cost.gpu import Gpu
from tclint.cost.rows import FloatArray
from tclint.graph.lowering.walks import WARP
from tclint.graph.lowering.work import Traffic

ELEMENT_CYCLES = 0.46
"""Time of an SM per element whose place in memory a thread works out, at boost clock. This and the next one
from 14 strided and broadcast sums, products and copies of 16 bits in two public traces of an H100, which
they fit within 12 %; five of a trace of an A100 agree."""
PLACE_CYCLES = 0.033
"""The same for each dim of each operand, which is a division."""
CAT_CYCLES = 0.84
"""ELEMENT_CYCLES of concatenation, from six of them on an H100: torch before the end of 2025, which loads one
element at a time."""
SECTOR_CYCLES = 1.8
"""Time of an SM per sector that it draws from the L2, where the threads of a warp want many: two transposing
copies of 16 bits on an H100, 1.4 to 1.7 for three of 32 bits on an A100."""
_CONCATENATIONS = frozenset({"cat", "concat", "concatenate", "stack"})

CyclesT = TypeVar("CyclesT", float, FloatArray)


def walk_cycles(work: Traffic) -> float:
    """Cycles that SMs spend on working out places and drawing scattered sectors; 0 of what lies in a row."""
    walk = work.walk
    if walk is None:
        return 0.0
    own = CAT_CYCLES if work.operation in _CONCATENATIONS else ELEMENT_CYCLES
    places = own + PLACE_CYCLES * walk.operands * walk.dims
    return walk.elements * work.launches * max(places, SECTOR_CYCLES * walk.sectors / WARP)


def conversion_cycles(elements: CyclesT) -> CyclesT:
    """The same of copying images from one memory format into the other: two operands of three dims."""
    return elements * (ELEMENT_CYCLES + PLACE_CYCLES * 2 * 3)


def all_sms_us(cycles: CyclesT, gpu: Gpu) -> CyclesT:
    """Microseconds of cycles that all SMs share."""
    return cycles / (gpu.sm_count * gpu.boost_mhz)
