"""The bytes of frames, records and canonical JSON, and which are refused. Pure."""
