"""Frames to and from other peers: engines, connections, flow control, dialing, RPC, signaling."""
