"""Actors that speak Kafka's protocol: handlers without sockets, beside clients of HTTP."""
