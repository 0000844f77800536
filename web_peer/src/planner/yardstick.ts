/*
 * What peers time where their mesh has no model that answers in words: a product of matrices (twin of
 * planner/model/yardstick.py). Pure. Each multiplies `x` (rows, 512) by a constant matrix, on what computes offered
 * models, and says of it what others say of a unit of the kind `ffn`.
 */

import type { UnitKind } from './manifest';

export const KIND: UnitKind = 'ffn';
export const WIDTH = 512;
export const ROWS = 64; // as a prompt has them
export const FLOPS = 2 * WIDTH * WIDTH; // of a row

/** y = MatMul(x, ConstantOfShape([512, 512], 1)), opset 13, as an ONNX file. */
export const GRAPH =
  '08083a9d010a360a0173120177220f436f6e7374616e744f6653686170652a1d0a0576616c75652a1108011001420576616c75654a0400' +
  '00803fa001040a110a01780a017712017922064d61744d756c1201672a19080210074201734a1000020000000000000002000000000000' +
  '5a180a017812130a110801120d0a061204726f77730a0308800462180a017912130a110801120d0a061204726f77730a03088004420' +
  '40a00100d';
