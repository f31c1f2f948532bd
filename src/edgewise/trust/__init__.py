"""How far an explanation can be trusted: sign flips, sampled and proved, and a report of everything that can be measured.

Start with `report.py`, what `ew.check` returns, and `measurements.py`, which fills it in. Names load on first use.
"""

from typing import TYPE_CHECKING

from edgewise._lazy import lazy_names

_WHERE = {
    "check": "edgewise.api.check",
    "certify": "edgewise.trust.certificate",
    "sign_flips": "edgewise.trust.flips",
    "Certificate": "edgewise.trust.certificate",
    "Report": "edgewise.trust.report",
    "SignFlips": "edgewise.trust.flips",
}

__all__ = list(_WHERE)

if TYPE_CHECKING:
    from edgewise.api.check import check as check
    from edgewise.trust.certificate import Certificate as Certificate
    from edgewise.trust.certificate import certify as certify
    from edgewise.trust.flips import SignFlips as SignFlips
    from edgewise.trust.flips import sign_flips as sign_flips
    from edgewise.trust.report import Report as Report

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
