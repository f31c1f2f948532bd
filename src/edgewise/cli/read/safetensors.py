"""The safetensors format: eight bytes with the length of a JSON header, the header, the tensors' bytes."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import FileError

_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors by name. Lengths and offsets are checked: a file that is cut short says so."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    try:
        if len(content) < 8 + size:
            raise ValueError(f"a header of {size} bytes is announced")
        header = json.loads(content[8 : 8 + size])
        body = memoryview(content)[8 + size :]
        return {name: _tensor(entry, body) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(
            f"{path} cannot be read as safetensors ({error}). It may be cut short, or another kind of file."
        ) from error


def _tensor(entry: dict[str, Any], body: memoryview) -> Tensor:
    dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not 0 <= begin <= end <= len(body):
        raise ValueError(f"bytes {begin} to {end} of {len(body)} are asked for")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(body[begin:end]), dtype=dtype).reshape(shape)
