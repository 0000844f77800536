"""The mesh as OpenAI's HTTP API, and its figures for Prometheus."""
