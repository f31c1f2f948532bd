"""How far an explanation can be trusted: sign flips, sampled and proved.

`questions.py` lists what is asked (target, edge); `sampling.py` answers by passes through any model. Where a model allows it,
gradients are bounded by interval arithmetic: `plan.py` reads a lowered program as `operations.py`, `at_one.py` runs it at
ω = 1, `spreading.py` carries one edge's change forwards, `returning.py` a target's gradient back.
"""

from edgewise.trust.certificate import Certificate, certify
from edgewise.trust.flips import SignFlips, sign_flips

__all__ = ["Certificate", "SignFlips", "certify", "sign_flips"]
