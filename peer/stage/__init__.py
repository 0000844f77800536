"""This peer as a stage: the units it loads, steps on their way to the runtime, seats, KV transfer."""
