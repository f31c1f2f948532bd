"""Numbers and texts as compact JSON that is safe inside a page."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


def floats(values: Tensor) -> str:
    """Base64 of float32, little endian, in the order of memory: what a `Float32Array` reads.

    >>> floats(torch.tensor([1.0]))
    'AACAPw=='
    """
    return base64.b64encode(values.detach().cpu().contiguous().numpy().astype("<f4").tobytes()).decode()


def integers(values: Any) -> str:
    """Base64 of int32, little endian: what an `Int32Array` reads.

    >>> integers([1])
    'AQAAAA=='
    """
    whole = torch.as_tensor(values, dtype=torch.long)
    return base64.b64encode(whole.cpu().numpy().astype("<i4").tobytes()).decode()


def number(value: float) -> float | None:
    """With the digits of a float32; `None` for NaN and infinities, which JSON does not know.

    >>> number(1 / 3), number(float("nan"))
    (0.3333333, None)
    """
    short = float(f"{value:.7g}")
    return short if short - short == 0 else None


def as_script(data: Any) -> str:
    r"""JSON without the characters that end a script, open a comment or are markup: nothing from data is read as HTML.

    >>> as_script({"label": "</script><b>"})
    '{"label":"\\u003c/script\\u003e\\u003cb\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
