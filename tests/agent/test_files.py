"""Files give back what was written, in memory that computes alike."""

import numpy as np
import torch

from tsac.agent import files


def test_what_is_read_is_aligned_as_new_memory_is(tmp_path):
    """Products round by where their factors lie: a resumed run has to find them as an uninterrupted one does."""
    odd = {f"{number}": np.arange(number + 1, dtype=np.uint8) for number in range(7)}
    written = {**odd, "array": np.arange(56, dtype=np.float32).reshape(2, 28), "tensor": torch.arange(5.0)}
    files.write(tmp_path / "file.safetensors", written)
    read = files.read(tmp_path / "file.safetensors")
    assert read["array"].ctypes.data % 64 == 0
    assert read["tensor"].data_ptr() % 64 == 0
    for name, value in written.items():
        np.testing.assert_array_equal(read[name], value)
