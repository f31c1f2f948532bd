"""How far an explanation can be trusted: sign flips, sampled and proved, and a report of everything that can be measured.

`questions.py` lists what is asked (target, edge); `sampling.py` answers by passes through any model. Where a model allows it,
gradients are bounded by interval arithmetic: `plan.py` reads a lowered program as `operations.py`, `at_one.py` runs it at
ω = 1, `spreading.py` carries one edge's change forwards, `returning.py` a target's gradient back.

`report.py` has `check`: `balance.py` (do scores add up), `effects.py` (gradient and occlusion), `activity.py` (ReLU units) and
`saturation.py` (the softmax) measure, `assembling.py` makes `findings.py` of it, `facts.py` and
`statements.py` words, `layout.py` tables.
"""

from edgewise.trust.certificate import Certificate, certify
from edgewise.trust.findings import Report
from edgewise.trust.flips import SignFlips, sign_flips
from edgewise.trust.report import check

__all__ = ["Certificate", "Report", "SignFlips", "certify", "check", "sign_flips"]
