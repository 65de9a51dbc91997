"""Sweep of a deployment: the job, its tasks for many workers, the table, the report."""
