"""Which arithmetic a model runs in: what the user named, or what the device does best."""

import torch

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_dtype(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    """The torch dtype that `dtype` names; None is float32 on a CPU, bfloat16 elsewhere.

    Raises ValueError for any other name.
    """
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    named = _DTYPES.get(str(dtype).removeprefix("torch."))
    if named is None:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    return named
