"""Limits and timeouts that both sides of a connection share. Pure.

Generated from schema/limits.toml by `make generate`: change that, not this.
"""

from typing import Final

# Numbers
MAX_INT: Final = 2**53 - 1  # the largest integer that JavaScript numbers hold exactly
MAX_TOKEN: Final = 2**31 - 1  # token ids and counts of positions are 32-bit integers

# Versions of the protocol
# LOWEST_VERSION: that this side speaks; frames are alike in all versions from here on
LOWEST_VERSION: Final = 3
HIGHEST_VERSION: Final = 8  # that this side speaks

# Pieces and flow control (docs/protocol.md, chapters Pieces and Flow control)
PIECE_BYTES: Final = 16 * 1024  # the size that every WebRTC implementation passes on whole
PIECE_VERSION: Final = 1  # in the first byte of each piece
# WINDOW_BYTES: granted at the start and kept open ahead of a receiver that keeps up
WINDOW_BYTES: Final = 4 * 1024 * 1024
GRANT_STEP_BYTES: Final = 1024 * 1024  # a CREDIT is worth sending from here on
MAX_BUFFERED_BYTES: Final = 1024 * 1024  # no engine is ever given more than this per channel
# HIGH_WATER_BYTES: stop feeding the engine: what waits there cannot be overtaken
HIGH_WATER_BYTES: Final = 256 * 1024
BULK_WATER_BYTES: Final = 96 * 1024  # the same for a long frame of no session: 0.2 s at 5 Mbit/s
LOW_WATER_BYTES: Final = 64 * 1024  # feed it again; at 30 MB/s these last 2 ms
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024  # per channel; a sender that does not wait for room reaches it

# Frames (docs/protocol.md, chapter Frames)
MAX_CONTROL_FRAME_BYTES: Final = 1024 * 1024
MAX_DATA_FRAME_BYTES: Final = 16 * 1024 * 1024
# MAX_HEADER_BYTES: bounds what a nest of arrays can make the msgpack decoder allocate
MAX_HEADER_BYTES: Final = 16 * 1024
MAX_HEADER_ITEMS: Final = 1024  # of one array of a header: bounds what the decoder allocates
SESSION_BYTES: Final = 16
HASH_BYTES: Final = 32  # SHA-256
MAX_NAME_BYTES: Final = 128  # peer ids, display names, agent strings, method names
MAX_TEXT_BYTES: Final = 4096  # reasons and messages meant for people
MAX_ROUTE: Final = 64  # stages
MAX_TEAM: Final = 16  # peers that compute a stage together
MAX_TEAM_ROWS: Final = 512  # numbers that say something of each row of a team
MAX_SAMPLING: Final = 32  # settings of sampling
MAX_END_TOKENS: Final = 64
MAX_SPANS: Final = 512  # of given and sampled positions in one session
MAX_SHADOWS: Final = 128
MAX_HISTORY: Final = 256 * 1024  # tokens; above any context length in use
MAX_PROBE_BYTES: Final = 1024 * 1024
# MAX_RANGE_BYTES: of a piece of weights in one frame: an activation behind it waits no longer
MAX_RANGE_BYTES: Final = 256 * 1024
MAX_CONSENSUS_BYTES: Final = 512 * 1024  # an entry as long as any may be, and room for its message
MAX_ENTRY_BYTES: Final = 256 * 1024  # of the log: a longer command is refused
MAX_LIKELY_BYTES: Final = 8 * 21  # of a token and 20 others
MAX_BUNDLE_FRAMES: Final = 64
MAX_BUNDLE_BYTES: Final = 1024 * 1024
MAX_BODY_BYTES: Final = (
    MAX_CONTROL_FRAME_BYTES - MAX_HEADER_BYTES
)  # of a request and of its answer, of any kind
# MAX_REFUSAL_BYTES: what a refusal says beside its words: the id of whoever leads
MAX_REFUSAL_BYTES: Final = 2048

# Tensors (docs/protocol.md, chapter Tensors)
MAX_RANK: Final = 4  # dimensions
MAX_VALUE_RANK: Final = 16  # dimensions of a value of a run
# MAX_VALUE_BYTES: of one value of a run; a peer keeps far less of them at a time
MAX_VALUE_BYTES: Final = 1024 * 1024 * 1024
MAX_TENSOR_BYTES: Final = (
    16 * 1024 * 1024 - 64 * 1024
)  # leaves room for a header inside the largest data frame

# Connections (docs/protocol.md, chapters Heartbeat and Goodbye)
BEAT_S: Final = 1.0  # a side asks at a beat, or is heard
SUSPECT_S: Final = 3.0  # of silence: the other side is suspect
# LOST_S: of silence: it is lost; a person must see within 10 s what became of an answer
LOST_S: Final = 7.0
CLOSE_S: Final = 5.0  # for what is queued to arrive before the transport goes
# LINGER_S: how long a BYE may take to be answered once nothing else is waiting
LINGER_S: Final = 1.0

# Canonical JSON: commands, snapshots, bodies of requests (docs/protocol.md, chapter Mesh state)
MAX_TEXT: Final = 512  # characters of a name, reason or sentence
MAX_ITEMS: Final = 4096  # entries of a list or map
# MAX_DEPTH: lists and objects inside one another; what a peer does not know is held to it as well
MAX_DEPTH: Final = 32
