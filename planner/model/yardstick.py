"""What peers time where their mesh has no model that answers in words: a product of matrices. Pure.

Peers of other meshes time units of that model. Here each multiplies `x` (rows, 512) by a constant matrix, on what
computes offered models, and says of it what others say of a unit of the kind `ffn`. The same in
web_peer/src/planner/yardstick.ts.
"""

from __future__ import annotations

from typing import Final

from planner.types import Unit, UnitKind

KIND: Final[UnitKind] = "ffn"
WIDTH: Final = 512
ROWS: Final = 64  # as a prompt has them
FLOPS: Final = 2 * WIDTH * WIDTH  # of a row
UNITS: Final = (Unit("yardstick", KIND, 0, FLOPS, 0, 4 * WIDTH),)  # as the planner knows it; nobody holds it

# y = MatMul(x, ConstantOfShape([512, 512], 1)), opset 13, as an ONNX file
GRAPH: Final = bytes.fromhex(
    "08083a9d010a360a0173120177220f436f6e7374616e744f6653686170652a1d0a0576616c75652a1108011001420576616c75654a0400"
    "00803fa001040a110a01780a017712017922064d61744d756c1201672a19080210074201734a1000020000000000000002000000000000"
    "5a180a017812130a110801120d0a061204726f77730a0308800462180a017912130a110801120d0a061204726f77730a03088004420"
    "40a00100d"
)
