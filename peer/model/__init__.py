"""A model on this machine: checked pieces from other peers, the tokenizer, the chat template."""
