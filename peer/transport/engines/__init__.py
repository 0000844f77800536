"""The transports that carry a connection: aiortc, and libdatachannel where it is installed."""
