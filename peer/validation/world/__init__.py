"""The mesh that is hurt: its processes, links, relay, workload and the faults put into them."""
