"""Work that grows with input from people or the network, in processes of its own, within time and memory."""
