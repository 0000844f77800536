"""Runs your own ONNX model on the machines of a mesh, which offers it: shoal offer LINK model.onnx --name MODEL

python examples/run_onnx.py 'http://127.0.0.1:8765/#...' MODEL FILE.npz     (an array for each input of the model)
"""

from __future__ import annotations

import sys

import numpy as np

from peer import Mesh
from peer.errors import PeerError
from peer.launch.streams import take_any_text
from signaling.errors import SignalingError


def show(link: str, model: str, file: str) -> None:
    """One line for each output."""
    with Mesh.join_blocking(link) as mesh:
        for name, array in mesh.run(model, dict(np.load(file))).items():
            print(name, array.dtype, array.shape)


def main() -> int:
    """Exit status 1 and one line when the mesh cannot run it."""
    take_any_text()
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        show(*sys.argv[1:])
    except (PeerError, SignalingError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
