"""Numba compiles a loop for the arrays that come."""

from typing import Any

Array = Any
