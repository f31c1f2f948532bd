"""Programs whose numbers have so few binary digits that floating-point arithmetic does not round: small whole weights, halves.

Hand-made networks are like that, and they have ties; of a trained network no number is.
"""

from torch import Tensor

from edgewise.counterfactuals.binary_digits import LONGEST, MANY, digits
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall, SetMap
from edgewise.trust.interval_operations import Rectify


def is_exact(program: SetProgram, magnitude: dict[int, Tensor]) -> bool:
    """Whether no sum or product of a program is rounded; `magnitude` bounds every value."""
    behind = {value: digits(rows) for value, rows in program.constants.items()}
    for step in program.steps:
        behind[step.output] = places = _of_call(step, behind) if isinstance(step, SetCall) else _of_map(step, behind)
        if places >= MANY or float(magnitude[step.output].max()) * 2.0 ** min(places, 1000) > LONGEST:
            return False
    return True


def _of_call(step: SetCall, behind: dict[int, int]) -> int:
    if step.sent is not None:
        return max(step.digits, digits(step.rest)) + digits(step.coefficient)
    source = behind[step.source]
    sent = source + digits(step.matrix) + digits(step.coefficient, step.own_scale)
    return max(sent, source + digits(step.root), digits(step.bias))


def _of_map(step: SetMap, behind: dict[int, int]) -> int:
    source = max(behind[value] for value in step.reads)
    if isinstance(step.operation, Rectify):
        return source + digits(step.operation.below, step.operation.above)
    return max(source + digits(step.matrix) + digits(step.scale), digits(step.shift))
