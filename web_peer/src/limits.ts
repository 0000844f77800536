/*
 * Limits and timeouts that both sides of a connection share. Pure.
 *
 * Generated from schema/limits.toml by `make generate`: change that, not this.
 */

// Numbers
export const MAX_INT = 2 ** 53 - 1; // the largest integer that JavaScript numbers hold exactly
export const MAX_TOKEN = 2 ** 31 - 1; // token ids and counts of positions are 32-bit integers

// Versions of the protocol
export const LOWEST_VERSION = 3; // that this side speaks; frames are alike in all versions from here on
export const HIGHEST_VERSION = 8; // that this side speaks

// Pieces and flow control (docs/protocol.md, chapters Pieces and Flow control)
export const PIECE_BYTES = 16 * 1024; // the size that every WebRTC implementation passes on whole
export const PIECE_VERSION = 1; // in the first byte of each piece
export const WINDOW_BYTES = 4 * 1024 * 1024; // granted at the start and kept open ahead of a receiver that keeps up
export const GRANT_STEP_BYTES = 1024 * 1024; // a CREDIT is worth sending from here on
export const MAX_BUFFERED_BYTES = 1024 * 1024; // no engine is ever given more than this per channel
export const HIGH_WATER_BYTES = 256 * 1024; // stop feeding the engine: what waits there cannot be overtaken
export const BULK_WATER_BYTES = 96 * 1024; // the same for a long frame of no session: 0.2 s at 5 Mbit/s
export const LOW_WATER_BYTES = 64 * 1024; // feed it again; at 30 MB/s these last 2 ms
export const MAX_QUEUED_BYTES = 64 * 1024 * 1024; // per channel; a sender that does not wait for room reaches it

// Frames (docs/protocol.md, chapter Frames)
export const MAX_CONTROL_FRAME_BYTES = 1024 * 1024;
export const MAX_DATA_FRAME_BYTES = 16 * 1024 * 1024;
export const MAX_HEADER_BYTES = 16 * 1024; // bounds what a nest of arrays can make the msgpack decoder allocate
export const MAX_HEADER_ITEMS = 1024; // of one array of a header: bounds what the decoder allocates
export const SESSION_BYTES = 16;
export const HASH_BYTES = 32; // SHA-256
export const MAX_NAME_BYTES = 128; // peer ids, display names, agent strings, method names
export const MAX_TEXT_BYTES = 4096; // reasons and messages meant for people
export const MAX_ROUTE = 64; // stages
export const MAX_TEAM = 16; // peers that compute a stage together
export const MAX_TEAM_ROWS = 512; // numbers that say something of each row of a team
export const MAX_SAMPLING = 32; // settings of sampling
export const MAX_END_TOKENS = 64;
export const MAX_SPANS = 512; // of given and sampled positions in one session
export const MAX_SHADOWS = 128;
export const MAX_HISTORY = 256 * 1024; // tokens; above any context length in use
export const MAX_PROBE_BYTES = 1024 * 1024;
export const MAX_RANGE_BYTES = 256 * 1024; // of a piece of weights in one frame: an activation behind it waits no longer
export const MAX_CONSENSUS_BYTES = 512 * 1024; // an entry as long as any may be, and room for its message
export const MAX_ENTRY_BYTES = 256 * 1024; // of the log: a longer command is refused
export const MAX_LIKELY_BYTES = 8 * 21; // of a token and 20 others
export const MAX_BUNDLE_FRAMES = 64;
export const MAX_BUNDLE_BYTES = 1024 * 1024;
export const MAX_BODY_BYTES = MAX_CONTROL_FRAME_BYTES - MAX_HEADER_BYTES; // of a request and of its answer, of any kind
export const MAX_REFUSAL_BYTES = 2048; // what a refusal says beside its words: the id of whoever leads

// Tensors (docs/protocol.md, chapter Tensors)
export const MAX_RANK = 4; // dimensions
export const MAX_VALUE_RANK = 16; // dimensions of a value of a run
export const MAX_VALUE_BYTES = 1024 * 1024 * 1024; // of one value of a run; a peer keeps far less of them at a time
export const MAX_TENSOR_BYTES = 16 * 1024 * 1024 - 64 * 1024; // leaves room for a header inside the largest data frame

// Connections (docs/protocol.md, chapters Heartbeat and Goodbye)
export const BEAT_S = 1; // a side asks at a beat, or is heard
export const SUSPECT_S = 3; // of silence: the other side is suspect
export const LOST_S = 7; // of silence: it is lost; a person must see within 10 s what became of an answer
export const CLOSE_S = 5; // for what is queued to arrive before the transport goes
export const LINGER_S = 1; // how long a BYE may take to be answered once nothing else is waiting

// Canonical JSON: commands, snapshots, bodies of requests (docs/protocol.md, chapter Mesh state)
export const MAX_TEXT = 512; // characters of a name, reason or sentence
export const MAX_ITEMS = 4096; // entries of a list or map
export const MAX_DEPTH = 32; // lists and objects inside one another; what a peer does not know is held to it as well
