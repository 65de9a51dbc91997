"""Runners of connectors, toy sources and sinks, and clients that pause, stop and change them."""
