/*
 * The floors of the tab's code, lowest first: a package imports those of the floors below. The same as the contracts of
 * peer/ in pyproject.toml, and planner/ and signaling/ under them, as there. check_layers.js holds the code to it.
 */

const room = (name, never = []) => ({
  name,
  never: never.map((one) => `src/${one}`),
  holds: (file) => file.startsWith(`src/${name}/`) || file === `src/${name}`,
});
const page = (name, most = '') => ({ name, holds: (file) => file.startsWith(`${name}/`) && file !== most });
const file = (name) => ({ name, holds: (one) => one === name });

export const FLOORS = [
  [room('errors'), room('limits')],
  [room('wire')],
  [room('planner'), room('signaling')],
  [room('consensus', ['planner', 'signaling']), room('state')],
  [room('session', ['consensus']), room('dataflow', ['consensus'])],
  [room('transport')],
  [room('model')],
  [room('runtime'), room('storage', ['model'])],
  [room('replication')],
  [room('stage')],
  [room('origin')],
  [room('audit'), room('conversation')],
  [room('coordination')],
  [room('member')],
  [file('ui/app/view')], // types that every room of the page is handed
  [page('ui/kit')],
  [page('ui/join')],
  [page('ui/mesh')],
  [page('ui/plan')],
  [page('ui/models')],
  [page('ui/conversation')],
  [page('ui/app', 'ui/app/view')],
  [page('scenes')],
];

export const MOST_MODULES = 25; // in one folder: beyond it nobody finds anything

/** Pure as whole packages. */
export const PURE_PACKAGES = ['wire', 'consensus', 'state', 'session', 'dataflow'];

/** Pure modules of other packages: functions of their arguments. */
export const PURE = [
  'src/audit/canary_policy',
  'src/audit/check_policy',
  'src/audit/norm_envelopes',
  'src/audit/receipts',
  'src/audit/step_place',
  'src/conversation/live_answer',
  'src/conversation/picture_marks',
  'src/conversation/turn_order',
  'src/coordination/coordinator',
  'src/coordination/electorate',
  'src/coordination/held_plan',
  'src/coordination/independent_copies',
  'src/coordination/plan_request',
  'src/coordination/rebalance',
  'src/coordination/repair_order',
  'src/coordination/voter_policy',
  'src/errors',
  'src/limits',
  'src/member/join_retry',
  'src/member/page_options',
  'src/member/rate_meter',
  'src/model/chat_template',
  'src/model/control_tokens',
  'src/model/stop_strings',
  'src/model/template_filters',
  'src/model/template_methods',
  'src/model/template_syntax',
  'src/model/template_values',
  'src/model/tokenizer',
  'src/origin/arithmetic_changes',
  'src/planner/abstract_operators',
  'src/planner/arithmetic_class',
  'src/planner/blob_ref',
  'src/planner/checked_fields',
  'src/planner/compose',
  'src/planner/graph_draft',
  'src/planner/graph_manifest',
  'src/planner/kv_window',
  'src/planner/linear',
  'src/planner/lowering',
  'src/planner/manifest',
  'src/planner/onnx_messages',
  'src/planner/sampling_defaults',
  'src/planner/speech',
  'src/planner/yardstick',
  'src/runtime/kv_slots',
  'src/runtime/slowdown',
  'src/runtime/step_times',
  'src/runtime/weight_unpacking',
  'src/signaling/errors',
  'src/storage/journal_core',
  'src/storage/journal_records',
  'src/storage/log_records',
  'src/storage/stored_log',
  'src/transport/circuit_breakers',
  'src/transport/connection_path',
  'src/transport/flow_control',
  'src/transport/heartbeat',
  'src/transport/median',
  'src/transport/redial',
];

/** What pure modules import that is not ours. */
export const PURE_PACKAGES_OUTSIDE = ['@huggingface/tokenizers', '@noble/hashes/sha2.js'];

export const isPure = (file) =>
  PURE.includes(file) || PURE_PACKAGES.some((name) => file.startsWith(`src/${name}/`));
