"""Files that programs send to the gateway: forms, and pictures that are asked about later."""
