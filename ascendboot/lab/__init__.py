"""The practice cluster: servers made of namespaces on this machine, with stand-in NPUs."""

from __future__ import annotations

from ascendboot.lab.cluster import Lab, find
from ascendboot.lab.programs import LabError, RangeInUseError
from ascendboot.lab.shape import Shape
from ascendboot.lab.updown import down, up

__all__ = ["Lab", "LabError", "RangeInUseError", "Shape", "down", "find", "up"]
