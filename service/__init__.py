"""Gateways, jobs and functions: everything that runs as a process."""
