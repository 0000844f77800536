"""What crosses the wire or the disk, as data (the TOML files), and the generator of both languages' code for it."""
