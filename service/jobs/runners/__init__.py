"""Where the tasks of a job run: threads of this process, or workers of Spark."""
