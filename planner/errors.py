"""The error tree of planner. Every message says what was expected, what came, and what to do.

PlannerError
├── ModelError            a foreign model file cannot be used
│   ├── CorruptModel      not the format it claims, or truncated
│   ├── UnknownArchitecture
│   ├── MissingTensor
│   ├── UnknownTokenizer
│   └── NoSuchModel       path, hf: name or short name that leads nowhere
├── RequestError          a plan was asked for, or encoded, with values that no plan can be made from
├── HistoryError          the history of what was measured
│   ├── HistoryBusy       another process writes it
│   ├── HistoryUnusable   no history, or one of a newer Shoal; or what it needs is not installed
│   │   └── HistoryDamaged  ... or it cannot be read, or not all of it
│   └── QueryRefused      a question to the history that is not one, does more than read, or takes too long
├── StoreError            the model store on disk
│   ├── CorruptStore      a piece, blob or manifest with a wrong hash, or a manifest that breaks its rules
│   │   └── OldFormat     … or one that an older version wrote
│   ├── NotInStore
│   └── StoreFull         the disk refused; nothing half-written is left
└── JobError              work in a process of its own that has no result
    ├── JobTooLong        its CPU time was spent
    ├── JobTooLarge       its memory was spent
    ├── JobsBusy          too many wait already; the same can be tried later
    └── JobBroken         its process could not be started, or has ended
"""


class PlannerError(Exception):
    """Root of planner's errors."""


class ModelError(PlannerError):
    """A foreign model file cannot be used."""


class CorruptModel(ModelError):
    """The file is not what it claims to be, or ends early."""


class UnknownArchitecture(ModelError):
    """The architecture is not one that the unit builder knows."""


class MissingTensor(ModelError):
    """A tensor that the architecture needs is absent."""


class UnknownTokenizer(ModelError):
    """The vocabulary or pre-tokenizer cannot be expressed as a tokenizer.json."""


class NoSuchModel(ModelError):
    """The name or path leads to no model."""


class RequestError(PlannerError):
    """A request to plan, or an encoded plan, breaks its rules; the text names the field."""


class HistoryError(PlannerError):
    """The history of what was measured cannot be used."""


class HistoryBusy(HistoryError):
    """Another process writes this history: there is one writer at a time."""


class HistoryUnusable(HistoryError):
    """There is no history, it is of a newer Shoal or damaged, or what it needs is not installed."""


class HistoryDamaged(HistoryUnusable):
    """The file of a history cannot be read, or not all of it."""


class QueryRefused(HistoryError):
    """The question is not one that a read-only view answers, or it took too long."""


class StoreError(PlannerError):
    """The model store on disk refused."""


class CorruptStore(StoreError):
    """Stored bytes do not have the hash they are named by, or a manifest breaks its rules."""


class OldFormat(CorruptStore):
    """A manifest in a format that an older version wrote: the model has to be imported again."""


class NotInStore(StoreError):
    """The blob, piece or model is not in this store."""


class StoreFull(StoreError):
    """The disk refused to take more; nothing half-written is left."""


class JobError(PlannerError):
    """Work in a process of its own has no result."""


class JobTooLong(JobError):
    """The work took more CPU time than it may."""


class JobTooLarge(JobError):
    """The work took more memory than it may."""


class JobsBusy(JobError):
    """Too many wait already; the same can be tried later."""


class JobBroken(JobError):
    """The process could not be started, or has ended."""
