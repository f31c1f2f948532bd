"""How far an explanation can be trusted: sign flips, sampled and proved.

`questions.py` lists what is asked (target, edge); `sampling.py` answers by passes through any model; `plan.py`, `intervals.py`,
`at_one.py`, `spreading.py` and `returning.py` bound gradients by interval arithmetic where a model allows it.
"""

from edgewise.trust.certificate import Certificate, certify
from edgewise.trust.flips import SignFlips, sign_flips

__all__ = ["Certificate", "SignFlips", "certify", "sign_flips"]
